// What an instruction set has to offer: the inner part of paged attention, single-threaded.
//
// attention_kernel.cpp is compiled once per instruction set. Such a unit holds no inline std:: code: the linker could
// keep its wide-instruction copy of a shared function for everybody.
#pragma once

#include <cstdint>

namespace octavo {

// Positions of a context that are scored and weighed together. Tiles start at multiples of it, whatever the block size.
constexpr int kTile = 32;

// Positions of a context that are reduced on their own before they are merged, in order, with those before them.
// Work may be split there and nowhere else, so that the order of reduction never depends on how it was split.
constexpr int64_t kPartition = 512;

// Rows are padded to a multiple of this many floats.
constexpr int kLanes = 16;

// The query rows of consecutive tokens that share one KV head: row = token * heads_per_token + head.
struct QueryTile {
    const float *rows; // [num_rows][row_stride], scaled, zero past head_size
    int num_rows;
    int row_stride;
    int heads_per_token;
    int64_t first_position; // of the first token, in its context
};

// K and V of one sequence, layer and KV head.
struct PagedKV {
    const void *keys;    // of block 0: [block_size][head_size]
    int64_t values_from; // from a key to its value
    int64_t block_stride;
    const int32_t *block_table;
    int block_size;
    int head_size;
    int dtype; // octavo_dtype
};

// Softmax so far, one entry per query row.
struct SoftmaxState {
    float *maxima;   // [num_rows] of the scores
    float *sums;     // [num_rows] of exp(score - maximum)
    float *weighted; // [num_rows][row_stride] of exp(score - maximum) * value
};

// Where one token's K and V of one KV head go.
struct KVSlot {
    void *keys;          // of its block: [block_size][head_size]
    int64_t values_from; // from a key to its value
    int offset;          // in the block
    int block_size;
    int head_size;
    int dtype; // octavo_dtype
};

struct AttentionKernels {
    const char *isa;

    // Stores [head_size] of `dtype` each, rounded to the slot's type.
    void (*store_kv)(const void *key, const void *value, int dtype, const KVSlot &slot);

    // Scales and widens [num_rows][head_size] of `dtype` to [num_rows][row_stride].
    void (*load_query)(const void *query, int dtype, int num_rows, int head_size, float scale, float *rows);

    // Reduces the positions [begin, end) of one partition into a fresh state. A row sees positions up to its own.
    // `scratch` has scratch_floats(head_size) floats, 64-byte aligned.
    void (*attend)(const QueryTile &query, const PagedKV &kv, int64_t begin, int64_t end, SoftmaxState state,
                   float *scratch);

    // Adds what a later partition gave.
    void (*merge)(SoftmaxState total, SoftmaxState part, int num_rows, int row_stride);

    // Divides by the sums and narrows to [num_rows][head_size] of `dtype`.
    void (*store_output)(SoftmaxState state, int num_rows, int head_size, int dtype, void *output);
};

static constexpr int padded(int head_size) { return (head_size + kLanes - 1) / kLanes * kLanes; }

static constexpr int64_t scratch_floats(int head_size) { return int64_t{2} * kTile * padded(head_size); }

extern const AttentionKernels attention_kernels_portable;
#if defined(__x86_64__)
extern const AttentionKernels attention_kernels_avx2;
extern const AttentionKernels attention_kernels_avx512;
#endif

// Those of the selected instruction set.
const AttentionKernels &attention_kernels();

} // namespace octavo
