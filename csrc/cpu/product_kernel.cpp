// y = x W^T with packed weights, in float32.
//
//   one row    every weight is dequantized in registers, used and forgotten: memory sets the pace
//   many rows  a chunk of a panel is dequantized into the first-level cache, then multiplied with all rows,
//              kRows × kColumns vectors of sums in registers at a time
//
// Either way a sum starts at 0 and takes weight * x of one input after the other, each a fused multiply-add (or, on a
// set without them, a product and a sum), so a row's bits do not depend on how many others there are.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table, OCTAVO_ISA the set.
#include "panel_sums.h"
#include "product.h"
#include "weights.h"

namespace octavo {
namespace {

#if defined(__AVX512F__)
constexpr int kRows = 14, kColumns = 2; // 28 of 32 registers are sums
#elif defined(__AVX2__)
constexpr int kRows = 6, kColumns = 1; // 12 of 16 registers, two to a vector
#else
constexpr int kRows = 2, kColumns = 1; // 8 of 16 registers, four to a vector
#endif

constexpr int64_t kChunk = 128;    // inputs whose weights are in float32 at a time
constexpr int64_t kRowBlock = 252; // rows whose sums are kept at a time: a multiple of every kRows

// Memory of one thread.
struct alignas(64) Scratch {
    float weights[kChunk][kPanel];
    float sums[kRowBlock][kPanel];
};

struct Rows {
    const float *first;
    int64_t stride;
    int64_t count;
};

template <class Group>
__attribute__((noinline)) void multiply_row(const uint8_t *panel, int64_t num_inputs, const float *x, float *sums) {
    Outputs total = {{broadcast(0.0f), broadcast(0.0f)}};
    visit_inputs<Group>(panel, 0, num_inputs, [&](int64_t k, Outputs weights) {
        const Floats16 value = broadcast(x[k]);
        total = multiply_add(weights, Outputs{{value, value}}, total);
    });
    for (int v = 0; v < kVectors; ++v) store(sums + v * kLanes, total.at[v]);
}

// sums[r * kPanel + ..] += weights · x[r] for R rows and kColumns vectors of outputs
template <int R>
inline void accumulate_rows(const float *x, int64_t stride, const float *weights, int64_t count, float *sums) {
    Floats16 totals[R][kColumns];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c) totals[r][c] = load(sums + r * kPanel + c * kLanes);
    for (int64_t k = 0; k < count; ++k) {
        Floats16 weight[kColumns];
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c) weight[c] = load(weights + k * kPanel + c * kLanes);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const Floats16 value = broadcast(x[r * stride + k]);
#pragma GCC unroll 2
            for (int c = 0; c < kColumns; ++c) totals[r][c] = multiply_add(weight[c], value, totals[r][c]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int c = 0; c < kColumns; ++c) store(sums + r * kPanel + c * kLanes, totals[r][c]);
}

// accumulate_rows<num_rows>, for at most R
template <int R>
void accumulate_few(int64_t num_rows, const float *x, int64_t stride, const float *weights, int64_t count,
                    float *sums) {
    if (num_rows == R) return accumulate_rows<R>(x, stride, weights, count, sums);
    if constexpr (R > 1) accumulate_few<R - 1>(num_rows, x, stride, weights, count, sums);
}

// `weights` [count][kPanel] of the inputs from `first_input` on; `sums` [rows.count][kPanel]
void accumulate(Rows rows, int64_t first_input, const float *weights, int64_t count, float *sums) {
    for (int64_t row = 0; row < rows.count; row += kRows) {
        const float *x = rows.first + row * rows.stride + first_input;
        const int64_t num_rows = rows.count - row < kRows ? rows.count - row : kRows;
        for (int column = 0; column < kPanel; column += kColumns * kLanes)
            accumulate_few<kRows>(num_rows, x, rows.stride, weights + column, count, sums + row * kPanel + column);
    }
}

template <class Group>
__attribute__((noinline)) void dequantize(const uint8_t *panel, int64_t first_input, int64_t count,
                                          float (*weights)[kPanel]) {
    visit_inputs<Group>(panel, first_input, count, [=](int64_t k, Outputs outputs) {
        for (int v = 0; v < kVectors; ++v) store(weights[k] + v * kLanes, outputs.at[v]);
    });
}

template <class Group> void multiply_rows(const uint8_t *panel, int64_t num_inputs, Rows rows, Scratch &scratch) {
    for (int64_t row = 0; row < rows.count; ++row)
        for (int v = 0; v < kVectors; ++v) store(scratch.sums[row] + v * kLanes, broadcast(0.0f));
    for (int64_t first = 0; first < num_inputs; first += kChunk) {
        const int64_t count = num_inputs - first < kChunk ? num_inputs - first : kChunk;
        dequantize<Group>(panel, first, count, scratch.weights);
        accumulate(rows, first, scratch.weights[0], count, scratch.sums[0]);
    }
}

// ---------------------------------------------------------------- the table

int64_t padded_inputs(int64_t num_inputs) { return (num_inputs + kLanes - 1) / kLanes * kLanes; }

int64_t activation_bytes(int64_t num_inputs) { return padded_inputs(num_inputs) * 4; }

// Zeros follow the inputs: the other half of the last word of bfloat16 may be multiplied with them.
void prepare(const float *row, int64_t num_inputs, void *prepared) {
    float *to = static_cast<float *>(prepared);
    int64_t k = 0;
    for (; k + kLanes <= num_inputs; k += kLanes) store(to + k, load(row + k));
    for (; k < padded_inputs(num_inputs); ++k) to[k] = k < num_inputs ? row[k] : 0.0f;
}

int64_t scratch_bytes(int64_t) { return sizeof(Scratch); }

template <class Group>
void multiply_panels(const PackedMatrix &weights, Rows rows, int64_t first, int64_t last, float *y, int64_t y_stride,
                     Scratch &scratch) {
    const int64_t bytes = panel_bytes<Group>(weights.num_inputs);
    const int64_t num_inputs = (weights.num_inputs + Group::kInputs - 1) / Group::kInputs * Group::kInputs;
    for (int64_t panel = first; panel < last; ++panel) {
        const uint8_t *data = static_cast<const uint8_t *>(weights.data) + panel * bytes;
        const int64_t num_outputs = outputs_of_panel(weights.num_outputs, panel);
        for (int64_t row = 0; row < rows.count; row += kRowBlock) {
            Rows block = {rows.first + row * rows.stride, rows.stride, rows.count - row};
            if (block.count > kRowBlock) block.count = kRowBlock;
            if (block.count == 1)
                multiply_row<Group>(data, num_inputs, block.first, scratch.sums[0]);
            else
                multiply_rows<Group>(data, num_inputs, block, scratch);
            write_sums(scratch.sums[0], block.count, num_outputs, y + row * y_stride + panel * kPanel, y_stride);
        }
    }
}

void multiply_matrix(const PackedMatrix &weights, const void *prepared, int64_t num_rows, int64_t first_panel,
                     int64_t last_panel, float *y, int64_t y_stride, void *scratch) {
    const Rows rows = {static_cast<const float *>(prepared), padded_inputs(weights.num_inputs), num_rows};
    with_group<void>(weights.format, [&](auto group) {
        multiply_panels<decltype(group)>(weights, rows, first_panel, last_panel, y, y_stride,
                                         *static_cast<Scratch *>(scratch));
    });
}

} // namespace

extern const ProductKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const ProductKernels OCTAVO_KERNELS = {OCTAVO_ISA, activation_bytes, prepare, scratch_bytes, multiply_matrix};

} // namespace octavo
