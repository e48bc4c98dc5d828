// Paged attention of a few query rows over one partition of a context (PagedAttention, §4.1).
//
//   for each tile of 32 positions:      keys and values are found through the block table
//     scores  = query · keys            rows of a KV head share every load of a key
//     weights = exp(scores - maximum)   online softmax: what was weighed before is rescaled when the maximum grows
//     weighted += weights · values
//
// What is done for one row never depends on the other rows: each row goes through the same roundings in the same order
// alone, in a group, at a tile's diagonal or before it. Positions that a row must not see take no part in a product.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table, OCTAVO_ISA the set.
#include "attention_kernel.h"

#include "exponential.h"
#include "octavo.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr int kRows = 4; // query rows that share a load

// ---------------------------------------------------------------- exp

inline float exponential(float x) {
    float lanes[kLanes];
    store(lanes, exponential(broadcast(x)));
    return lanes[0];
}

// ---------------------------------------------------------------- one tile

template <class Element> struct Tile {
    const Element *keys[kTile];
    // Keys of the tile after this one (of this one in the last). Each load of a row asks for the same row there: a
    // burst of prefetches would exceed what a core can have in flight, and wait.
    const Element *const *upcoming;
    int64_t values_from;
    int count; // positions in it
};

struct alignas(64) Scores {
    float partial[kRows][kTile][8]; // sums over every eighth element, before they are added up
    float scores[kRows][kTile];     // then the weights
};

// partial[r][j] = query row r · key j
template <int R, class Element>
void score(const float *query, int row_stride, const Tile<Element> &tile, int num_keys, int head_size, Scores &out) {
    const int whole = head_size / kLanes * kLanes;
    for (int j = 0; j < num_keys; ++j) {
        const Element *key = tile.keys[j];
        Floats16 sums[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r] = broadcast(0.0f);
        for (int d = 0; d < whole; d += kLanes) {
            const Floats16 k = load(key + d);
            __builtin_prefetch(tile.upcoming[j] + d);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sums[r] = multiply_add(load(query + r * row_stride + d), k, sums[r]);
        }
        if (whole < head_size) {
            const Floats16 k = load_half(key + whole);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sums[r] = multiply_add(load(query + r * row_stride + whole), k, sums[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) store_folded(out.partial[r][j], sums[r]);
    }
}

// weighted[r][d..] += weights[r][j] * values[j][d..] for C vectors of 16; `half`: only 8 elements are there
template <int R, int C, bool half, class Element>
inline void weigh_columns(const float (*weights)[kTile], const Tile<Element> &tile, int first, int end, int column,
                          float *weighted, int row_stride) {
    Floats16 sums[R][C];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sums[r][c] = load(weighted + r * row_stride + column + c * kLanes);
    for (int j = first; j < end; ++j) {
        const Element *value = tile.keys[j] + tile.values_from + column;
        __builtin_prefetch(tile.upcoming[j] + tile.values_from + column);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            const Floats16 v = half ? load_half(value) : load(value + c * kLanes);
#pragma GCC unroll 4
            for (int r = 0; r < R; ++r) sums[r][c] = multiply_add(broadcast(weights[r][j]), v, sums[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) store(weighted + r * row_stride + column + c * kLanes, sums[r][c]);
}

template <int R, class Element>
void weigh(const float (*weights)[kTile], const Tile<Element> &tile, int first, int end, int head_size, float *weighted,
           int row_stride) {
    constexpr int C = R == 1 ? 4 : R == 2 ? 2 : 1; // enough independent sums to hide the latency of an addition
    int column = 0;
    for (; column + C * kLanes <= head_size; column += C * kLanes)
        weigh_columns<R, C, false>(weights, tile, first, end, column, weighted, row_stride);
    for (; column + kLanes <= head_size; column += kLanes)
        weigh_columns<R, 1, false>(weights, tile, first, end, column, weighted, row_stride);
    if (column < head_size) weigh_columns<R, 1, true>(weights, tile, first, end, column, weighted, row_stride);
}

void scale_row(float *row, int row_stride, float factor) {
    for (int d = 0; d < row_stride; d += kLanes) store(row + d, multiply(load(row + d), broadcast(factor)));
}

// Turns the scores of the first `count` positions into weights, the rest into 0, and rescales what was weighed before.
void soften(float *scores, int count, SoftmaxState state, int row, int row_stride) {
    const Floats16 minus_infinity = broadcast(-__builtin_inff());
    const Floats16 low = keep_first(load(scores), count, minus_infinity);
    const Floats16 high = keep_first(load(scores + kLanes), count - kLanes, minus_infinity);
    const float tile_maximum = largest(maximum(low, high));
    const float before = state.maxima[row];
    if (tile_maximum > before) {
        const float factor = exponential(before - tile_maximum);
        state.maxima[row] = tile_maximum;
        state.sums[row] *= factor;
        scale_row(state.weighted + int64_t{row} * row_stride, row_stride, factor);
    }
    const Floats16 base = broadcast(state.maxima[row]);
    const Floats16 low_weights = exponential(subtract(low, base));
    const Floats16 high_weights = exponential(subtract(high, base));
    store(scores, low_weights);
    store(scores + kLanes, high_weights);
    state.sums[row] += sum(add(low_weights, high_weights));
}

// How many positions of a tile from `tile_begin` the row sees.
int visible(const QueryTile &query, int row, int64_t tile_begin, int tile_count) {
    const int64_t count = query.first_position + row / query.heads_per_token - tile_begin + 1;
    return count < 0 ? 0 : count > tile_count ? tile_count : static_cast<int>(count);
}

// Rows row .. row + R - 1, all of which see something; later rows see no less.
template <int R, class Element>
void reduce_rows(const QueryTile &query, const Tile<Element> &tile, int64_t tile_begin, int head_size,
                 SoftmaxState state, int row, Scores &work) {
    const int stride = query.row_stride;
    int counts[R];
    for (int r = 0; r < R; ++r) counts[r] = visible(query, row + r, tile_begin, tile.count);
    score<R>(query.rows + int64_t{row} * stride, stride, tile, counts[R - 1], head_size, work);
    for (int r = 0; r < R; ++r) {
        for (int j = 0; j < counts[r]; j += 8) sum_rows(&work.partial[r][j], &work.scores[r][j]);
        soften(work.scores[r], counts[r], state, row + r, stride);
    }
    float *weighted = state.weighted + int64_t{row} * stride;
    weigh<R>(work.scores, tile, 0, counts[0], head_size, weighted, stride);
    for (int r = 1; r < R; ++r)
        weigh<1>(&work.scores[r], tile, counts[0], counts[r], head_size, weighted + r * stride, stride);
}

template <class Element>
void reduce_tile(const QueryTile &query, const Tile<Element> &tile, int64_t tile_begin, int head_size,
                 SoftmaxState state, Scores &work) {
    int row = 0;
    while (row < query.num_rows && visible(query, row, tile_begin, tile.count) == 0) ++row;
    for (; row + kRows <= query.num_rows; row += kRows)
        reduce_rows<kRows>(query, tile, tile_begin, head_size, state, row, work);
    switch (query.num_rows - row) {
    case 3:
        return reduce_rows<3>(query, tile, tile_begin, head_size, state, row, work);
    case 2:
        return reduce_rows<2>(query, tile, tile_begin, head_size, state, row, work);
    case 1:
        return reduce_rows<1>(query, tile, tile_begin, head_size, state, row, work);
    }
}

// ---------------------------------------------------------------- memory

template <class Element> void find_keys(const PagedKV &kv, int64_t begin, int count, Tile<Element> &tile) {
    const Element *keys = static_cast<const Element *>(kv.keys);
    int64_t index = begin / kv.block_size;
    int offset = static_cast<int>(begin % kv.block_size);
    for (int j = 0; j < count; ++j) {
        tile.keys[j] = keys + kv.block_table[index] * kv.block_stride + int64_t{offset} * kv.head_size;
        if (++offset == kv.block_size) {
            offset = 0;
            ++index;
        }
    }
    for (int j = count; j < kTile; ++j) tile.keys[j] = tile.keys[count - 1];
    tile.upcoming = tile.keys;
    tile.values_from = kv.values_from;
    tile.count = count;
}

template <class From, class To> void convert_row(const From *from, int head_size, float factor, To *to) {
    const int whole = head_size / kLanes * kLanes;
    for (int d = 0; d < whole; d += kLanes) store(to + d, multiply(load(from + d), broadcast(factor)));
    if (whole < head_size) store_half(to + whole, multiply(load_half(from + whole), broadcast(factor)));
}

// Many rows read a tile many times: widen it once.
void widen(const Tile<bfloat16> &from, int head_size, float *scratch, Tile<float> &to) {
    const int stride = padded(head_size);
    to.values_from = int64_t{kTile} * stride;
    to.count = from.count;
    to.upcoming = to.keys;
    for (int j = 0; j < from.count; ++j) {
        convert_row(from.keys[j], head_size, 1.0f, scratch + j * stride);
        convert_row(from.keys[j] + from.values_from, head_size, 1.0f, scratch + to.values_from + j * stride);
        to.keys[j] = scratch + j * stride;
    }
    for (int j = from.count; j < kTile; ++j) to.keys[j] = scratch;
}

void reduce(const QueryTile &query, const Tile<float> &tile, int64_t begin, int head_size, SoftmaxState state,
            Scores &work, float *) {
    reduce_tile(query, tile, begin, head_size, state, work);
}

void reduce(const QueryTile &query, const Tile<bfloat16> &tile, int64_t begin, int head_size, SoftmaxState state,
            Scores &work, float *scratch) {
    if (query.num_rows <= kRows) return reduce_tile(query, tile, begin, head_size, state, work);
    Tile<float> wide;
    widen(tile, head_size, scratch, wide);
    reduce_tile(query, wide, begin, head_size, state, work);
}

void clear(SoftmaxState state, int num_rows, int row_stride) {
    for (int row = 0; row < num_rows; ++row) {
        state.maxima[row] = -__builtin_inff();
        state.sums[row] = 0.0f;
    }
    for (int64_t i = 0; i < int64_t{num_rows} * row_stride; i += kLanes) store(state.weighted + i, broadcast(0.0f));
}

int tile_length(int64_t begin, int64_t end) { return end - begin < kTile ? static_cast<int>(end - begin) : kTile; }

template <class Element>
void attend_elements(const QueryTile &query, const PagedKV &kv, int64_t begin, int64_t end, SoftmaxState state,
                     float *scratch) {
    clear(state, query.num_rows, query.row_stride);
    Scores work = {}; // lanes past a row's count are loaded, then masked
    Tile<Element> tiles[2];
    find_keys(kv, begin, tile_length(begin, end), tiles[0]);
    for (int turn = 0; begin < end; begin += kTile, turn ^= 1) {
        const int64_t next = begin + kTile;
        if (next < end) {
            find_keys(kv, next, tile_length(next, end), tiles[turn ^ 1]);
            tiles[turn].upcoming = tiles[turn ^ 1].keys;
        }
        reduce(query, tiles[turn], begin, kv.head_size, state, work, scratch);
    }
}

template <class From, class To> void store_rows_in_slot(const void *key, const void *value, const KVSlot &slot) {
    To *to = static_cast<To *>(slot.keys) + int64_t{slot.offset} * slot.head_size;
    convert_row(static_cast<const From *>(key), slot.head_size, 1.0f, to);
    convert_row(static_cast<const From *>(value), slot.head_size, 1.0f, to + slot.values_from);
}

// ---------------------------------------------------------------- the table

void store_kv(const void *key, const void *value, int dtype, const KVSlot &slot) {
    if (dtype == OCTAVO_FLOAT32 && slot.dtype == OCTAVO_FLOAT32)
        store_rows_in_slot<float, float>(key, value, slot);
    else if (dtype == OCTAVO_FLOAT32)
        store_rows_in_slot<float, bfloat16>(key, value, slot);
    else if (slot.dtype == OCTAVO_FLOAT32)
        store_rows_in_slot<bfloat16, float>(key, value, slot);
    else
        store_rows_in_slot<bfloat16, bfloat16>(key, value, slot);
}

void attend(const QueryTile &query, const PagedKV &kv, int64_t begin, int64_t end, SoftmaxState state, float *scratch) {
    if (kv.dtype == OCTAVO_BFLOAT16) return attend_elements<bfloat16>(query, kv, begin, end, state, scratch);
    attend_elements<float>(query, kv, begin, end, state, scratch);
}

void merge(SoftmaxState total, SoftmaxState part, int num_rows, int row_stride) {
    for (int row = 0; row < num_rows; ++row) {
        if (part.sums[row] == 0.0f) continue; // the row does not reach into this partition
        const float maximum = part.maxima[row] > total.maxima[row] ? part.maxima[row] : total.maxima[row];
        const float total_factor = exponential(total.maxima[row] - maximum);
        const float part_factor = exponential(part.maxima[row] - maximum);
        total.maxima[row] = maximum;
        total.sums[row] = total.sums[row] * total_factor + part.sums[row] * part_factor;
        float *sums = total.weighted + int64_t{row} * row_stride;
        const float *more = part.weighted + int64_t{row} * row_stride;
        for (int d = 0; d < row_stride; d += kLanes) {
            const Floats16 scaled = multiply(load(more + d), broadcast(part_factor));
            store(sums + d, multiply_add(load(sums + d), broadcast(total_factor), scaled));
        }
    }
}

template <class Element> void load_rows(const Element *query, int num_rows, int head_size, float scale, float *rows) {
    const int stride = padded(head_size);
    for (int row = 0; row < num_rows; ++row) {
        store(rows + row * stride + stride - kLanes, broadcast(0.0f));
        convert_row(query + row * head_size, head_size, scale, rows + row * stride);
    }
}

void load_query(const void *query, int dtype, int num_rows, int head_size, float scale, float *rows) {
    if (dtype == OCTAVO_BFLOAT16)
        return load_rows(static_cast<const bfloat16 *>(query), num_rows, head_size, scale, rows);
    load_rows(static_cast<const float *>(query), num_rows, head_size, scale, rows);
}

template <class Element> void store_rows(SoftmaxState state, int num_rows, int head_size, Element *output) {
    const int stride = padded(head_size);
    for (int row = 0; row < num_rows; ++row)
        convert_row(state.weighted + row * stride, head_size, 1.0f / state.sums[row], output + row * head_size);
}

void store_output(SoftmaxState state, int num_rows, int head_size, int dtype, void *output) {
    if (dtype == OCTAVO_BFLOAT16) return store_rows(state, num_rows, head_size, static_cast<bfloat16 *>(output));
    store_rows(state, num_rows, head_size, static_cast<float *>(output));
}

} // namespace

extern const AttentionKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const AttentionKernels OCTAVO_KERNELS = {OCTAVO_ISA, store_kv, load_query, attend, merge, store_output};

} // namespace octavo
