// Which rows of a ragged batch a thread block has, and where their KV lies.
#pragma once

#include "attention_tile.h"
#include "octavo.h"

namespace octavo::cuda {

// Parameters of a launch. The rows of a sequence for one KV head are its new tokens times the query heads that share
// the head: row = token * group + head.
struct Batch {
    octavo_paged_attention_params params;
    int32_t group;            // query heads that share a KV head
    int32_t block_size_shift; // log2
};

// A tile of rows of one sequence.
struct Work {
    int32_t seq; // num_seqs: nothing to do
    int32_t first_row;
    int32_t num_rows; // of the sequence, for one KV head
    int32_t first_token;
    int32_t context_len;

    __device__ int token_of(int row, int group) const { return first_token + row / group; }

    // Positions that a row sees. Rows past the end see what the last one does, and are not stored.
    __device__ int visible(int row, int group) const {
        const int last = num_rows - 1;
        return context_len - (last / group - min(row, last) / group);
    }
};

__device__ inline int sum_of_lower_lanes_and_own(int value) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        const int lower = __shfl_up_sync(0xFFFFFFFFu, value, distance);
        if (lane_of_warp() >= distance) value += lower;
    }
    return value;
}

// The sequence and tile with this number, counting the tiles of all sequences. Every warp finds it for itself.
__device__ inline Work find_work(const Batch &batch, int tile, int rows_per_tile) {
    const int32_t *starts = batch.params.query_starts;
    const int num_seqs = batch.params.num_seqs;
    for (int first = 0; first < num_seqs; first += 32) {
        const int seq = min(first + lane_of_warp(), num_seqs - 1);
        const int num_rows = (starts[seq + 1] - starts[seq]) * batch.group;
        const int num_tiles = first + lane_of_warp() < num_seqs ? (num_rows + rows_per_tile - 1) / rows_per_tile : 0;
        const int end = sum_of_lower_lanes_and_own(num_tiles);
        const unsigned behind = __ballot_sync(0xFFFFFFFFu, end > tile);
        if (behind != 0) {
            const int owner = __ffs(static_cast<int>(behind)) - 1;
            const int found = first + owner;
            const int first_tile = __shfl_sync(0xFFFFFFFFu, end - num_tiles, owner);
            return {found, (tile - first_tile) * rows_per_tile, __shfl_sync(0xFFFFFFFFu, num_rows, owner),
                    starts[found], batch.params.context_lens[found]};
        }
        tile -= __shfl_sync(0xFFFFFFFFu, end, 31);
    }
    return {num_seqs, 0, 0, 0, 0};
}

// Element of the pool where a position's key lies, for one KV head; its value lies `value_distance` further.
__device__ inline int64_t place_of(const Batch &batch, const Work &work, int kv_head, int position) {
    const octavo_cache &cache = batch.params.cache;
    const int32_t *table = batch.params.block_tables + int64_t{work.seq} * batch.params.max_blocks;
    const int64_t block = table[position >> batch.block_size_shift];
    const int offset = position & (cache.block_size - 1);
    const int64_t head = (block * cache.num_layers + batch.params.layer) * 2 * cache.num_kv_heads + kv_head;
    return (head * cache.block_size + offset) * cache.head_size;
}

__device__ inline int64_t value_distance(const octavo_cache &cache) {
    return int64_t{cache.num_kv_heads} * cache.block_size * cache.head_size;
}

} // namespace octavo::cuda
