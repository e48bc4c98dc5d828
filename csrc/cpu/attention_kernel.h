// What an instruction set has to offer: the inner part of paged attention, single-threaded.
//
// attention_kernel.cpp is compiled once per instruction set. Such a unit holds no inline std:: code: the linker could
// keep its wide-instruction copy of a shared function for everybody.
#pragma once

#include <cstdint>

namespace octavo {

// Positions of a context that are scored and weighed together, a multiple of 16. Tiles start at multiples of it,
// whatever the block size.
constexpr int kTile = 64;

// Positions of a context that are reduced on their own before they are merged, in order, with those before them.
// Work may be split there and nowhere else, so that the order of reduction never depends on how it was split.
constexpr int64_t kPartition = 256;

// Slots of a block that are packed together.
constexpr int kGroup = 16;

// Rows are padded to a multiple of this many floats.
constexpr int kLanes = 16;

// KV heads that one call reduces, at most.
constexpr int kMaxHeads = 32;

// Query rows of consecutive tokens: for each KV head, row = token * heads_per_token + head.
struct QueryTile {
    const float *rows; // [num_heads][num_rows][row_stride], scaled, zero past head_size
    int num_rows;      // of one KV head
    int row_stride;
    int heads_per_token;    // that share a KV head
    int64_t first_position; // of the first token, in its context
};

// K and V of one sequence and layer, of KV heads that lie side by side.
struct PagedKV {
    const void *keys;    // of block 0 and the first head
    int64_t values_from; // from a head's keys to its values
    int64_t head_stride;
    int64_t block_stride;
    const int32_t *block_table;
    int num_heads; // 1 if the block size is no multiple of 16
    int block_size;
    int head_size;
    int dtype; // octavo_dtype
};

// Positions [begin, end) of one partition.
struct KVRange {
    PagedKV kv;
    int64_t begin, end;
};

// Softmax so far, one entry per query row of all KV heads. Scores are in powers of two.
struct SoftmaxState {
    float *maxima;   // [num_heads * num_rows] of the scores
    float *sums;     // [num_heads * num_rows] of 2^(score - maximum)
    float *weighted; // [num_heads * num_rows][row_stride] of 2^(score - maximum) * value
};

// Where one token's K and V of one KV head go.
struct KVSlot {
    void *keys;          // of its block
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

    // Reduces a range into a fresh state. A row sees positions up to its own. `upcoming` is what this thread will read
    // next, or null. `scratch` has scratch_floats(head_size) floats, 64-byte aligned.
    void (*attend)(const QueryTile &query, const KVRange &range, const KVRange *upcoming, SoftmaxState state,
                   float *scratch);

    // Adds what a later partition gave.
    void (*merge)(SoftmaxState total, SoftmaxState part, int num_rows, int row_stride);

    // Divides by the sums and narrows to [num_rows][head_size] of `dtype`.
    void (*store_output)(SoftmaxState state, int num_rows, int head_size, int dtype, void *output);
};

static constexpr int padded(int head_size) { return (head_size + kLanes - 1) / kLanes * kLanes; }

static constexpr int64_t scratch_floats(int head_size) { return int64_t{2} * kTile * head_size; }

extern const AttentionKernels attention_kernels_portable;
#if defined(__x86_64__)
extern const AttentionKernels attention_kernels_avx2;
extern const AttentionKernels attention_kernels_avx512;
#endif

// Those of the selected instruction set.
const AttentionKernels &attention_kernels();

} // namespace octavo
