// y = x W^T with packed weights and activations rounded to bfloat16 (to nearest, ties to even), summed in float32.
//
// A panel is dequantized into rows of pairs, one pair of consecutive inputs per output: what both units eat.
//
//   pairs  [num_inputs / 2][kPanel] of two bfloat16            16 rows × 16 outputs of it are a tile of weights
//   x      [num_rows][num_inputs] of bfloat16                  16 rows × 32 inputs of it are a tile of activations
//
// Inputs are padded with zeros to whole tiles. A row's sums go through the inputs in order, in one unit, by the same
// instructions whatever its place among the rows, so that its bits do not depend on how many others there are.
//
// Compiled for sets with AVX512-BF16, and with AMX; OCTAVO_KERNELS names the table, OCTAVO_ISA the set.
#include "panel_sums.h"
#include "product.h"
#include "weights.h"

namespace octavo {
namespace {

constexpr int64_t kTileInputs = 32;

int64_t padded_inputs(int64_t num_inputs) { return (num_inputs + kTileInputs - 1) / kTileInputs * kTileInputs; }

using PairRow = uint32_t[kPanel];

// The prepared rows of one call.
struct Rows {
    const uint16_t *first;
    int64_t stride; // and padded number of inputs
    int64_t count;

    const uint16_t *at(int64_t row) const { return first + row * stride; }
};

// ---------------------------------------------------------------- weights

alignas(64) constexpr uint16_t kInterleaved[2 * kLanes] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};

// Lane i becomes the pair of first[i] (low half) and second[i].
inline __m512i round_to_pairs(__m512 first, __m512 second) {
    const __m512i halves = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(kInterleaved), halves);
}

inline void store_pairs(PairRow &row, Outputs first, Outputs second) {
    for (int v = 0; v < kVectors; ++v)
        _mm512_storeu_si512(row + v * kLanes, round_to_pairs(first.at[v].all, second.at[v].all));
}

// Inputs [first_input, first_input + count), `count` even but at the matrix's end, where zeros follow up to a tile.
template <class Group>
__attribute__((noinline)) void dequantize(const uint8_t *panel, int64_t first_input, int64_t count, PairRow *pairs) {
    const Outputs zeros = {{broadcast(0.0f), broadcast(0.0f)}};
    Outputs even = zeros;
    visit_inputs<Group>(panel, first_input, count, [&](int64_t k, Outputs weights) {
        if (k % 2 == 0)
            even = weights;
        else
            store_pairs(pairs[k / 2], even, weights);
    });
    int64_t next = count / 2;
    if (count % 2 != 0) store_pairs(pairs[next++], even, zeros);
    for (; next < padded_inputs(count) / 2; ++next) store_pairs(pairs[next], zeros, zeros);
}

#if defined(__AMX_BF16__)
// ---------------------------------------------------------------- tiles

constexpr int64_t kTileRows = 16;
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kChunk = 256; // inputs whose weights stay in the first-level cache until they are multiplied

// Tiles 0..3 are sums (rows 0 and 1, outputs 0 and 1), 4 and 5 rows of x, 6 and 7 weights.
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t bytes_per_row[16] = {};
    uint8_t rows[16] = {};
};

// Rows [first, first + num_rows), at most kBlockRows of them.
struct Block {
    int64_t first, num_rows;
};

void configure_tiles(int64_t num_rows) {
    const auto upper = static_cast<uint8_t>(num_rows < kTileRows ? num_rows : kTileRows);
    const auto lower =
        static_cast<uint8_t>(num_rows < kBlockRows && num_rows > kTileRows ? num_rows - kTileRows : kTileRows);
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
        config.bytes_per_row[tile] = 64;
        config.rows[tile] = tile == 6 || tile == 7 ? 16 : tile == 2 || tile == 3 || tile == 5 ? lower : upper;
    }
    asm volatile("" ::"m"(config)); // gcc 12 believes that only 8 bytes of it are read
    _tile_loadconfig(&config);
}

// Adds the products of `num_inputs` inputs, a multiple of kTileInputs, to the sums in the tiles.
void accumulate(const Rows &rows, Block block, int64_t first_input, const PairRow *pairs, int64_t num_inputs) {
    const int64_t row_bytes = rows.stride * 2;
    const uint16_t *upper = rows.at(block.first) + first_input;
    asm volatile("" ::: "memory"); // or gcc might store the weights after the tiles are loaded
    for (int64_t k = 0; k < num_inputs; k += kTileInputs) {
        const PairRow *weights = pairs + k / 2;
        _tile_loadd(6, weights, sizeof(PairRow));
        _tile_loadd(7, weights[0] + kLanes, sizeof(PairRow));
        _tile_loadd(4, upper + k, row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (block.num_rows <= kTileRows) continue;
        _tile_loadd(5, upper + kTileRows * rows.stride + k, row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

void clear_sums() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// `sums` [kBlockRows][kPanel]
void store_sums(Block block, float *sums) {
    constexpr int64_t kRowBytes = kPanel * sizeof(float);
    _tile_stored(0, sums, kRowBytes);
    _tile_stored(1, sums + kLanes, kRowBytes);
    if (block.num_rows <= kTileRows) return;
    _tile_stored(2, sums + kTileRows * kPanel, kRowBytes);
    _tile_stored(3, sums + kTileRows * kPanel + kLanes, kRowBytes);
}

// The next of more than kBlockRows rows. The last ones are taken with some before them, which get the same sums once
// more, so that tiles are full.
Block next_block(int64_t first, int64_t num_rows) {
    const int64_t left = num_rows - first;
    const int64_t rows = left > kTileRows ? kBlockRows : kTileRows;
    return {left < rows ? num_rows - rows : first, rows};
}

// Calls write(block, sums) for all rows of a panel.
template <class Group, class Write>
void multiply_panel(const uint8_t *panel, int64_t num_inputs, const Rows &rows, PairRow *pairs, float *sums,
                    Write write) {
    if (rows.count <= kBlockRows) { // weights are used once: no need to keep them
        const Block block = {0, rows.count};
        clear_sums();
        for (int64_t first = 0; first < num_inputs; first += kChunk) {
            const int64_t count = num_inputs - first < kChunk ? num_inputs - first : kChunk;
            dequantize<Group>(panel, first, count, pairs);
            accumulate(rows, block, first, pairs, padded_inputs(count));
        }
        store_sums(block, sums);
        return write(block, sums);
    }
    dequantize<Group>(panel, 0, num_inputs, pairs);
    for (int64_t row = 0; row < rows.count;) {
        const Block block = next_block(row, rows.count);
        clear_sums();
        accumulate(rows, block, 0, pairs, padded_inputs(num_inputs));
        store_sums(block, sums);
        write(block, sums);
        row = block.first + block.num_rows;
    }
}

// Other code of the process, torch's for one, may have configured tiles since the last call.
void begin_call(int64_t num_rows) { configure_tiles(num_rows); }

void end_call() { _tile_release(); }

#else
// ---------------------------------------------------------------- dot products of pairs

constexpr int64_t kBlockRows = 14; // times two vectors are 28 of 32 registers

struct Block {
    int64_t first, num_rows;
};

template <int R>
void accumulate(const Rows &rows, int64_t first_row, const PairRow *pairs, int64_t num_pairs, float *sums) {
    __m512 totals[R][kVectors];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) totals[r][v] = _mm512_set1_ps(0.0f);
    const uint16_t *x = rows.at(first_row);
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
        __m512i weights[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) weights[v] = _mm512_loadu_si512(pairs[pair] + v * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            int32_t both;
            __builtin_memcpy(&both, x + r * rows.stride + 2 * pair, sizeof both);
            const __m512i value = _mm512_set1_epi32(both);
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v)
                totals[r][v] = _mm512_dpbf16_ps(totals[r][v], (__m512bh)weights[v], (__m512bh)value);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + r * kPanel + v * kLanes, totals[r][v]);
}

// accumulate<num_rows>, for at most R
template <int R>
void accumulate_few(const Rows &rows, Block block, const PairRow *pairs, int64_t num_pairs, float *sums) {
    if (block.num_rows == R) return accumulate<R>(rows, block.first, pairs, num_pairs, sums);
    if constexpr (R > 1) accumulate_few<R - 1>(rows, block, pairs, num_pairs, sums);
}

// Calls write(block, sums) for all rows of a panel.
template <class Group, class Write>
void multiply_panel(const uint8_t *panel, int64_t num_inputs, const Rows &rows, PairRow *pairs, float *sums,
                    Write write) {
    dequantize<Group>(panel, 0, num_inputs, pairs);
    for (int64_t row = 0; row < rows.count; row += kBlockRows) {
        const Block block = {row, rows.count - row < kBlockRows ? rows.count - row : kBlockRows};
        accumulate_few<kBlockRows>(rows, block, pairs, padded_inputs(num_inputs) / 2, sums);
        write(block, sums);
    }
}

void begin_call(int64_t) {}

void end_call() {}
#endif

// ---------------------------------------------------------------- the table

int64_t activation_bytes(int64_t num_inputs) { return padded_inputs(num_inputs) * 2; }

void prepare(const float *row, int64_t num_inputs, void *prepared) {
    bfloat16 *to = static_cast<bfloat16 *>(prepared);
    int64_t k = 0;
    for (; k + kLanes <= num_inputs; k += kLanes) store(to + k, load(row + k));
    for (; k < padded_inputs(num_inputs); k += kLanes) {
        float last[kLanes] = {};
        for (int64_t i = k; i < num_inputs; ++i) last[i - k] = row[i];
        store(to + k, load(last));
    }
}

constexpr int64_t kSumsBytes = kBlockRows * kPanel * 4;

// The sums of a block, then the pairs of a panel.
int64_t scratch_bytes(int64_t num_inputs) {
    return kSumsBytes + padded_inputs(num_inputs) / 2 * static_cast<int64_t>(sizeof(PairRow));
}

void multiply(const PackedMatrix &weights, const void *prepared, int64_t num_rows, int64_t first_panel,
              int64_t last_panel, float *y, int64_t y_stride, void *scratch) {
    const Rows rows = {static_cast<const uint16_t *>(prepared), padded_inputs(weights.num_inputs), num_rows};
    float *sums = static_cast<float *>(scratch);
    auto *pairs = reinterpret_cast<PairRow *>(static_cast<char *>(scratch) + kSumsBytes);
    begin_call(num_rows);
    with_group<void>(weights.format, [&](auto group) {
        using Group = decltype(group);
        const int64_t bytes = panel_bytes<Group>(weights.num_inputs);
        for (int64_t panel = first_panel; panel < last_panel; ++panel) {
            const uint8_t *data = static_cast<const uint8_t *>(weights.data) + panel * bytes;
            const int64_t num_outputs = outputs_of_panel(weights.num_outputs, panel);
            multiply_panel<Group>(data, weights.num_inputs, rows, pairs, sums, [&](Block block, const float *from) {
                write_sums(from, block.num_rows, num_outputs, y + block.first * y_stride + panel * kPanel, y_stride);
            });
        }
    });
    end_call();
}

} // namespace

extern const ProductKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const ProductKernels OCTAVO_KERNELS = {OCTAVO_ISA, activation_bytes, prepare, scratch_bytes, multiply};

} // namespace octavo
