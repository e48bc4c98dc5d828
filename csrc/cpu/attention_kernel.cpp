// Paged attention of a few query rows over one partition of a context (PagedAttention, §4.1).
//
//   for each tile of 64 positions:       keys and values are found through the block table
//     scores  = query · keys             rows of a KV head share every load of a key; lanes are positions
//     weights = 2^(scores - maximum)     online softmax: what was weighed before is rescaled when the maximum grows
//     weighted += weights · values       lanes are columns
//
// What is done for one row never depends on the other rows: each row goes through the same roundings in the same order
// alone, in a group, at a tile's diagonal or before it. Positions that a row must not see take no part in a product
// with values.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table, OCTAVO_ISA the set.
#include "attention_kernel.h"

#include "attention_blocks.h"
#include "exponential.h"
#include "octavo.h"
#include "simd.h"

namespace octavo {
namespace {

// Most query rows that share a load: as many as there are registers for.
#if defined(__AVX512F__)
constexpr int kRows = 6;
#else
constexpr int kRows = 3;
#endif

struct alignas(64) Weights {
    float of[kRows][kTile]; // scores first
};

// ---------------------------------------------------------------- products

// Sums over even steps of the reduced axis and over odd ones: two chains of additions hide more of their latency.
template <int R> struct Sums {
    Floats16 of[R][2];
};

// Step `i` of lines of 16 lanes, or of 8.
template <bool half> inline Floats16 load_step(const float *lines, int i) {
    return half ? load_half(lines + i * (kLanes / 2)) : load(lines + i * kLanes);
}

template <bool half> inline Floats16 load_step(const bfloat16 *lines, int i) {
    const bfloat16 *line = lines + i / 2 * (half ? kLanes : 2 * kLanes);
    if (i % 2 != 0) asm("" : "+r"(line)); // loads it again: there are loads to spare, and no registers
    const Words16 pairs = half ? load_half_words(line) : load_words(line);
    return as_floats(i % 2 == 0 ? shift_left(pairs, 16) : keep_bits(pairs, 0xffff0000));
}

// sums[r][lane] += factors[r][i] * lines[i][lane] for i < count
template <int R, bool half, class Element>
inline void accumulate(const float *factors, int stride, const Element *lines, const Element *upcoming, int count,
                       Sums<R> &sums) {
    constexpr int kLine = half ? kLanes / 2 : kLanes;
    int i = 0;
    for (; i + 2 <= count; i += 2)
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s) {
            if (s == 0 || sizeof(Element) == 4) __builtin_prefetch(upcoming + (i + s) * kLine, 0, 2);
            const Floats16 step = load_step<half>(lines + i * kLine, s);
#pragma GCC unroll 6
            for (int r = 0; r < R; ++r)
                sums.of[r][s] = multiply_add(broadcast(factors[r * stride + i + s]), step, sums.of[r][s]);
        }
    if (i == count) return;
    const Floats16 step = load_step<half>(lines + i * kLine, 0);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) sums.of[r][0] = multiply_add(broadcast(factors[r * stride + i]), step, sums.of[r][0]);
}

template <int R, class Element>
void score(const float *query, int row_stride, const Tile<Element> &tile, Upcoming<Element> &upcoming, int count,
           int head_size, Weights &work) {
    for (int group = 0; group * kGroup < count; ++group) {
        Sums<R> sums;
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) sums.of[r][0] = sums.of[r][1] = broadcast(0.0f);
        accumulate<R, false>(query, row_stride, tile.keys[group], upcoming.take(kGroup * head_size), head_size, sums);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) store(work.of[r] + group * kGroup, add(sums.of[r][0], sums.of[r][1]));
    }
}

// weighted[r][column ..] += weights[r][j] * values[j][column ..] of the first `count` positions
template <int R, bool half, class Element>
void weigh_columns(const Weights &work, const Tile<Element> &tile, Upcoming<Element> &upcoming, int count, int column,
                   float *weighted, int row_stride) {
    Sums<R> sums;
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
        sums.of[r][0] = load(weighted + r * row_stride + column);
        sums.of[r][1] = broadcast(0.0f);
    }
    for (int group = 0; group * kGroup < count; ++group)
        accumulate<R, half>(work.of[0] + group * kGroup, kTile, tile.values[group] + column * kGroup,
                            upcoming.take(half ? kColumns / 2 : kColumns),
                            count - group * kGroup < kGroup ? count - group * kGroup : kGroup, sums);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) store(weighted + r * row_stride + column, add(sums.of[r][0], sums.of[r][1]));
}

template <int R, class Element>
void weigh(const Weights &work, const Tile<Element> &tile, Upcoming<Element> &upcoming, int count, int head_size,
           float *weighted, int row_stride) {
    int column = 0;
    for (; column + kLanes <= head_size; column += kLanes)
        weigh_columns<R, false>(work, tile, upcoming, count, column, weighted, row_stride);
    if (column < head_size) weigh_columns<R, true>(work, tile, upcoming, count, column, weighted, row_stride);
}

// ---------------------------------------------------------------- softmax

inline float exponential2(float x) {
    float lanes[kLanes];
    store(lanes, exponential2(broadcast(x)));
    return lanes[0];
}

void scale_row(float *row, int row_stride, float factor) {
    for (int d = 0; d < row_stride; d += kLanes) store(row + d, multiply(load(row + d), broadcast(factor)));
}

// Turns the scores of the first `count` positions into weights, the rest into 0, and rescales what was weighed before.
void soften(float *scores, int count, SoftmaxState state, int row, int row_stride) {
    constexpr int kVectors = kTile / kLanes;
    Floats16 parts[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i)
        parts[i] = keep_first(load(scores + i * kLanes), count - i * kLanes, broadcast(-__builtin_inff()));
    Floats16 highest = parts[0];
#pragma GCC unroll 8
    for (int i = 1; i < kVectors; ++i) highest = maximum(highest, parts[i]);
    const float tile_maximum = largest(highest), before = state.maxima[row];
    if (tile_maximum > before) {
        const float factor = exponential2(before - tile_maximum);
        state.maxima[row] = tile_maximum;
        state.sums[row] *= factor;
        scale_row(state.weighted + int64_t{row} * row_stride, row_stride, factor);
    }
    const Floats16 base = broadcast(state.maxima[row]);
    Floats16 total = broadcast(0.0f);
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) {
        const Floats16 weights = exponential2(subtract(parts[i], base));
        store(scores + i * kLanes, weights);
        total = add(total, weights);
    }
    state.sums[row] += sum(total);
}

// ---------------------------------------------------------------- one tile

// How many positions of a tile from `tile_begin` the row sees.
int visible(const QueryTile &query, int row, int64_t tile_begin, int tile_count) {
    const int64_t count = query.first_position + row / query.heads_per_token - tile_begin + 1;
    return count < 0 ? 0 : count > tile_count ? tile_count : static_cast<int>(count);
}

// What a head's rows are reduced with.
template <class Element> struct HeadWork {
    const QueryTile &query;
    const float *rows; // the head's
    Tile<Element> tile;
    int64_t begin; // of the tile
    int head_size;
    SoftmaxState state; // the head's
    Upcoming<Element> &upcoming;
    Weights &weights;
};

// Rows row .. row + R - 1, each of which sees the first `count` positions.
template <int R, class Element> void reduce_rows(const HeadWork<Element> &work, int row, int count) {
    const int stride = work.query.row_stride;
    score<R>(work.rows + int64_t{row} * stride, stride, work.tile, work.upcoming, count, work.head_size, work.weights);
    for (int r = 0; r < R; ++r) soften(work.weights.of[r], count, work.state, row + r, stride);
    weigh<R>(work.weights, work.tile, work.upcoming, count, work.head_size, work.state.weighted + int64_t{row} * stride,
             stride);
}

// The same for `num_rows`, at most R.
template <int R, class Element> void reduce_up_to(int num_rows, const HeadWork<Element> &work, int row, int count) {
    if (num_rows == R) return reduce_rows<R>(work, row, count);
    if constexpr (R > 1) reduce_up_to<R - 1>(num_rows, work, row, count);
}

template <class Element> void reduce_head(const HeadWork<Element> &work) {
    const QueryTile &query = work.query;
    for (int row = 0, num_rows = 1; row < query.num_rows; row += num_rows) {
        const int count = visible(query, row, work.begin, work.tile.count);
        num_rows = 1;
        while (num_rows < kRows && row + num_rows < query.num_rows &&
               visible(query, row + num_rows, work.begin, work.tile.count) == count)
            ++num_rows;
        if (count > 0) reduce_up_to<kRows>(num_rows, work, row, count);
    }
}

void clear(SoftmaxState state, int num_rows, int row_stride) {
    for (int row = 0; row < num_rows; ++row) {
        state.maxima[row] = -__builtin_inff();
        state.sums[row] = 0.0f;
    }
    for (int64_t i = 0; i < int64_t{num_rows} * row_stride; i += kLanes) store(state.weighted + i, broadcast(0.0f));
}

int tile_length(int64_t begin, int64_t end) { return end - begin < kTile ? static_cast<int>(end - begin) : kTile; }

// Points at what comes after the tile at `begin`.
template <class Element>
void look_ahead(const KVRange &range, int64_t begin, const KVRange *next, const Element *present,
                Upcoming<Element> &upcoming) {
    if (!is_packed(range.kv.block_size)) return upcoming.find_nothing(present);
    if (begin + kTile < range.end) return upcoming.find(range.kv, begin + kTile, tile_length(begin + kTile, range.end));
    if (next == nullptr) return upcoming.find_nothing(present);
    upcoming.find(next->kv, next->begin, tile_length(next->begin, next->end));
}

template <class Element>
void attend_elements(const QueryTile &query, const KVRange &range, const KVRange *next, SoftmaxState state,
                     Element *scratch) {
    const PagedKV &kv = range.kv;
    clear(state, kv.num_heads * query.num_rows, query.row_stride);
    Weights weights;
    Upcoming<Element> upcoming;
    for (int64_t begin = range.begin; begin < range.end; begin += kTile) {
        Tile<Element> tile = {};
        find_tile(kv, begin, tile_length(begin, range.end), scratch, tile);
        look_ahead(range, begin, next, tile.keys[0], upcoming);
        for (int head = 0; head < kv.num_heads; ++head) {
            const int64_t row = int64_t{head} * query.num_rows;
            reduce_head<Element>({query,
                                  query.rows + row * query.row_stride,
                                  tile,
                                  begin,
                                  kv.head_size,
                                  {state.maxima + row, state.sums + row, state.weighted + row * query.row_stride},
                                  upcoming,
                                  weights});
            for (int group = 0; group * kGroup < tile.count; ++group) {
                tile.keys[group] += kv.head_stride;
                tile.values[group] += kv.head_stride;
            }
        }
    }
}

// ---------------------------------------------------------------- the table

void store_kv(const void *key, const void *value, int dtype, const KVSlot &slot) {
    if (dtype == OCTAVO_FLOAT32 && slot.dtype == OCTAVO_FLOAT32)
        store_in_slot<float, float>(static_cast<const float *>(key), static_cast<const float *>(value), slot);
    else if (dtype == OCTAVO_FLOAT32)
        store_in_slot<float, bfloat16>(static_cast<const float *>(key), static_cast<const float *>(value), slot);
    else if (slot.dtype == OCTAVO_FLOAT32)
        store_in_slot<bfloat16, float>(static_cast<const bfloat16 *>(key), static_cast<const bfloat16 *>(value), slot);
    else
        store_in_slot<bfloat16, bfloat16>(static_cast<const bfloat16 *>(key), static_cast<const bfloat16 *>(value),
                                          slot);
}

void attend(const QueryTile &query, const KVRange &range, const KVRange *upcoming, SoftmaxState state, float *scratch) {
    if (range.kv.dtype == OCTAVO_BFLOAT16)
        return attend_elements(query, range, upcoming, state, reinterpret_cast<bfloat16 *>(scratch));
    attend_elements(query, range, upcoming, state, scratch);
}

void merge(SoftmaxState total, SoftmaxState part, int num_rows, int row_stride) {
    for (int row = 0; row < num_rows; ++row) {
        if (part.sums[row] == 0.0f) continue; // the row does not reach into this partition
        const float maximum = part.maxima[row] > total.maxima[row] ? part.maxima[row] : total.maxima[row];
        const float total_factor = exponential2(total.maxima[row] - maximum);
        const float part_factor = exponential2(part.maxima[row] - maximum);
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
    constexpr float kLog2OfE = 1.44269504f; // weights are powers of two
    const int stride = padded(head_size);
    for (int row = 0; row < num_rows; ++row) {
        store(rows + row * stride + stride - kLanes, broadcast(0.0f));
        convert_row(query + row * head_size, head_size, scale * kLog2OfE, rows + row * stride);
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
