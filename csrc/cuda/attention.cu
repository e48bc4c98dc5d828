// Paged attention of a ragged batch: decodes and chunks of prefills, in one pass over the context or split over it.
#include <climits>

#include "async_copy.h"
#include "attention_tile.h"
#include "attention_work.h"
#include "entry.h"
#include "paged_cache.h"

namespace octavo::cuda {
namespace {

constexpr float kLog2E = 1.4426950408889634f;

// Shared memory of a thread block: query rows, a tile of keys, one of values, then per warp what only it uses.
template <class T, int kHeadSize, int kWarps> struct Layout {
    static constexpr int kRows = kWarps * kRowsPerWarp;
    static constexpr int kStride = Rows<T, kHeadSize>::kStride;
    static constexpr int kQuery = 0;
    static constexpr int kKeys = kQuery + kRows * kStride * int{sizeof(T)};
    static constexpr int kValues = kKeys + kTilePositions * kStride * int{sizeof(T)};
    static constexpr int kTotals = kValues + kTilePositions * kStride * int{sizeof(T)};
    static constexpr int kTotalBytes = kRowsPerWarp * kHeadSize * int{sizeof(float)};
    static constexpr int kScratch = kTotals + kWarps * kTotalBytes;
    static constexpr int kScratchBytes = sizeof(T) == 4 ? kRowsPerWarp * kTilePositions * int{sizeof(float)} : 0;
    static constexpr int kBytes = kScratch + kWarps * kScratchBytes;
    static_assert(kBytes <= 163 << 10, "shared memory of sm_80");
};

// What the partitions of split attention leave for the reduction.
struct Workspace {
    float *sums;    // [num_partitions][num_tokens][num_heads][head_size]
    float *largest; // [num_partitions][num_tokens][num_heads]
    float *weights; // [num_partitions][num_tokens][num_heads]

    __host__ __device__ Workspace(void *memory, int64_t num_rows, int num_partitions, int head_size)
        : sums(static_cast<float *>(memory)), largest(sums + num_partitions * num_rows * head_size),
          weights(largest + num_partitions * num_rows) {}
};

// ---------------------------------------------------------------- loads

template <class T, int kHeadSize, int kWarps>
__device__ void load_query(const Batch &batch, const Work &work, int kv_head, T *shared) {
    using Row = Rows<T, kHeadSize>;
    const T *query = static_cast<const T *>(batch.params.query);
    for (int i = threadIdx.x; i < kWarps * kRowsPerWarp * Row::kChunks; i += kWarps * 32) {
        const int row = i / Row::kChunks, channel = i % Row::kChunks * Pack<T>::kSize;
        const bool present = work.first_row + row < work.num_rows;
        const int source = present ? work.first_row + row : 0;
        const int head = kv_head * batch.group + source % batch.group;
        const int64_t token = work.token_of(source, batch.group);
        start_copy(shared + row * Row::kStride + channel,
                   query + token * batch.params.query_stride + head * kHeadSize + channel, present);
    }
}

// `distance`: 0 for keys, value_distance() for values. Slots past the context give zeros and are not read.
template <class T, int kHeadSize, int kWarps>
__device__ void load_tile(const Batch &batch, const Work &work, int kv_head, int first, int64_t distance, T *shared) {
    using Row = Rows<T, kHeadSize>;
    const T *pool = static_cast<const T *>(batch.params.cache.pool) + distance;
    // As many as have room for their addresses in the registers beside the sums. g++ knows no such pragma.
    [[maybe_unused]] constexpr int kAhead = kHeadSize < 256 ? 4 : 2;
#pragma unroll kAhead
    for (int i = threadIdx.x; i < kTilePositions * Row::kChunks; i += kWarps * 32) {
        const int row = i / Row::kChunks, channel = i % Row::kChunks * Pack<T>::kSize;
        const bool present = first + row < work.context_len;
        const int64_t place = present ? place_of(batch, work, kv_head, first + row) : 0;
        start_copy(shared + row * Row::kStride + channel, pool + place + channel, present);
    }
}

// ---------------------------------------------------------------- results

// A lane's own slots of the warp's totals: no other lane reads them.
template <int kHeadSize>
__device__ void merge_into(float *totals, float (&largest)[2], float (&weights)[2], const Partial<kHeadSize> &partial,
                           bool first) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
        const Merge merge(largest[which], partial.largest[which]);
        largest[which] = merge.largest;
        weights[which] = merge(weights[which], partial.weights[which]);
#pragma unroll
        for (int i = 0; i < kHeadSize / 8; ++i)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                float &total = totals[(4 * i + 2 * which + column) * 32 + lane_of_warp()];
                total = merge(first ? 0.0f : total, partial.sums[i][2 * which + column]);
            }
    }
}

// Where the row `g + 8 * which` of this warp goes: token * num_heads + head, or -1 past the end.
__device__ int64_t result_row(const Batch &batch, const Work &work, int kv_head, int which) {
    const int row = work.first_row + threadIdx.x / 32 * kRowsPerWarp + row_of_lane() + 8 * which;
    if (row >= work.num_rows) return -1;
    return int64_t{work.token_of(row, batch.group)} * batch.params.num_heads + kv_head * batch.group +
           row % batch.group;
}

template <class T, int kHeadSize>
__device__ void store_rows(const Batch &batch, const Work &work, int kv_head, const float *totals,
                           const float (&weights)[2]) {
#pragma unroll
    for (int which = 0; which < 2; ++which) {
        const int64_t row = result_row(batch, work, kv_head, which);
        if (row < 0) continue;
        T *output = static_cast<T *>(batch.params.output) + row * kHeadSize + column_of_lane();
#pragma unroll
        for (int i = 0; i < kHeadSize / 8; ++i)
#pragma unroll
            for (int column = 0; column < 2; ++column)
                output[8 * i + column] =
                    from_float<T>(totals[(4 * i + 2 * which + column) * 32 + lane_of_warp()] / weights[which]);
    }
}

template <int kHeadSize>
__device__ void store_partial(const Batch &batch, const Work &work, int kv_head, const Workspace &workspace,
                              int partition, const Partial<kHeadSize> &partial) {
    const int64_t num_rows = batch.params.num_tokens * batch.params.num_heads;
#pragma unroll
    for (int which = 0; which < 2; ++which) {
        const int64_t row = result_row(batch, work, kv_head, which);
        if (row < 0) continue;
        const int64_t place = partition * num_rows + row;
        if (lane_of_warp() % 4 == 0) {
            workspace.largest[place] = partial.largest[which];
            workspace.weights[place] = partial.weights[which];
        }
        float *sums = workspace.sums + place * kHeadSize + column_of_lane();
#pragma unroll
        for (int i = 0; i < kHeadSize / 8; ++i)
            *reinterpret_cast<float2 *>(sums + 8 * i) =
                make_float2(partial.sums[i][2 * which], partial.sums[i][2 * which + 1]);
    }
}

// ---------------------------------------------------------------- kernels

// The tiles of a thread block, one after the other: keys of the next arrive while values of this one are used, and the
// other way round. `at_end_of_partition(partial, partition)` is called by all threads.
template <class T, int kHeadSize, int kWarps, class Visit>
__device__ void visit_partitions(const Batch &batch, const Work &work, int kv_head, int first_tile, int end_tile,
                                 unsigned char *shared, Visit at_end_of_partition) {
    using Shared = Layout<T, kHeadSize, kWarps>;
    const int warp = threadIdx.x / 32, first_row = work.first_row + warp * kRowsPerWarp + row_of_lane();
    T *query = reinterpret_cast<T *>(shared + Shared::kQuery), *keys = reinterpret_cast<T *>(shared + Shared::kKeys),
      *values = reinterpret_cast<T *>(shared + Shared::kValues);
    float *scratch = reinterpret_cast<float *>(shared + Shared::kScratch + warp * Shared::kScratchBytes);
    const int64_t to_values = value_distance(batch.params.cache);
    const int visible[2] = {work.visible(first_row, batch.group), work.visible(first_row + 8, batch.group)};
    const auto load_keys = [&](int tile) {
        if (tile < end_tile) load_tile<T, kHeadSize, kWarps>(batch, work, kv_head, tile * kTilePositions, 0, keys);
        commit_copies();
    };
    const auto load_values = [&](int tile) {
        if (tile < end_tile)
            load_tile<T, kHeadSize, kWarps>(batch, work, kv_head, tile * kTilePositions, to_values, values);
        commit_copies();
    };

    load_query<T, kHeadSize, kWarps>(batch, work, kv_head, query);
    load_keys(first_tile);
    load_values(first_tile);
    Partial<kHeadSize> partial;
    clear(partial);
    for (int tile = first_tile; tile < end_tile; ++tile) {
        wait_copies<1>();
        __syncthreads(); // this tile's keys are there
        Scores scores = {};
        Products<T, kHeadSize>::score(scores, query + warp * kRowsPerWarp * Shared::kStride, keys);
        __syncthreads(); // nobody needs the keys any more
        load_keys(tile + 1);
        scale_visible(scores, batch.params.scale * kLog2E, tile * kTilePositions, visible);
        weigh(scores, partial);
        wait_copies<1>();
        __syncthreads(); // this tile's values are there
        Products<T, kHeadSize>::add_values(partial, scores, values, scratch);
        __syncthreads(); // nobody needs the values any more
        load_values(tile + 1);
        if (tile % kTilesPerPartition == kTilesPerPartition - 1 || tile == end_tile - 1) {
            finish(partial);
            at_end_of_partition(partial, tile / kTilesPerPartition);
            clear(partial);
        }
    }
    wait_copies<0>();
}

// Tiles of the positions that the last row of a thread block sees.
__device__ int num_tiles(const Batch &batch, const Work &work, int rows_per_tile) {
    const int visible = work.visible(work.first_row + rows_per_tile - 1, batch.group);
    return (visible + kTilePositions - 1) / kTilePositions;
}

// Grid: x the tiles of kWarps * 16 rows of all sequences (their number is bounded by most_row_tiles; blocks past the
// last do nothing), y the KV heads. kWarps * 32 threads.
template <class T, int kHeadSize, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1) attend_in_one_pass(Batch batch) {
    using Shared = Layout<T, kHeadSize, kWarps>;
    OCTAVO_DYNAMIC_SHARED(unsigned char, shared);
    const Work work = find_work(batch, blockIdx.x, Shared::kRows);
    if (work.seq == batch.params.num_seqs) return;
    float *totals = reinterpret_cast<float *>(shared + Shared::kTotals + threadIdx.x / 32 * Shared::kTotalBytes);
    float largest[2] = {-INFINITY, -INFINITY}, weights[2] = {};
    visit_partitions<T, kHeadSize, kWarps>(batch, work, blockIdx.y, 0, num_tiles(batch, work, Shared::kRows), shared,
                                           [&](const Partial<kHeadSize> &partial, int partition) {
                                               merge_into(totals, largest, weights, partial, partition == 0);
                                           });
    store_rows<T, kHeadSize>(batch, work, blockIdx.y, totals, weights);
}

// Grid: as above, and z the partitions of the longest context that a row of block_tables can hold.
template <class T, int kHeadSize, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 1) attend_to_partition(Batch batch, Workspace workspace) {
    using Shared = Layout<T, kHeadSize, kWarps>;
    OCTAVO_DYNAMIC_SHARED(unsigned char, shared);
    const Work work = find_work(batch, blockIdx.x, Shared::kRows);
    if (work.seq == batch.params.num_seqs) return;
    const int first = blockIdx.z * kTilesPerPartition;
    const int end = min(first + kTilesPerPartition, num_tiles(batch, work, Shared::kRows));
    if (first >= end) return;
    visit_partitions<T, kHeadSize, kWarps>(batch, work, blockIdx.y, first, end, shared,
                                           [&](const Partial<kHeadSize> &partial, int partition) {
                                               store_partial(batch, work, blockIdx.y, workspace, partition, partial);
                                           });
}

// Merges the partitions in their order. Grid: x the tokens, y the query heads; kHeadSize / 2 threads, two channels
// each.
template <class T, int kHeadSize>
__global__ void __launch_bounds__(kHeadSize / 2) merge_partitions(Batch batch, Workspace workspace) {
    const octavo_paged_attention_params &params = batch.params;
    const int token = blockIdx.x, channel = 2 * threadIdx.x;
    int seq = 0;
    while (params.query_starts[seq + 1] <= token) ++seq;
    const int visible = params.context_lens[seq] - (params.query_starts[seq + 1] - 1 - token);
    const int64_t num_rows = params.num_tokens * params.num_heads;
    const int64_t row = int64_t{token} * params.num_heads + blockIdx.y;
    float largest = -INFINITY, weights = 0, sums[2] = {};
#pragma unroll 4
    for (int first = 0; first < visible; first += kPartitionPositions) {
        const int64_t place = first / kPartitionPositions * num_rows + row;
        const float2 next = *reinterpret_cast<const float2 *>(workspace.sums + place * kHeadSize + channel);
        const Merge merge(largest, workspace.largest[place]);
        largest = merge.largest;
        weights = merge(weights, workspace.weights[place]);
        sums[0] = merge(sums[0], next.x);
        sums[1] = merge(sums[1], next.y);
    }
    T *output = static_cast<T *>(params.output) + row * kHeadSize + channel;
    output[0] = from_float<T>(sums[0] / weights);
    output[1] = from_float<T>(sums[1] / weights);
}

// ---------------------------------------------------------------- launches

int32_t log2_of(int32_t power) {
    int32_t shift = 0;
    while (1 << shift < power) ++shift;
    return shift;
}

int most_partitions(const octavo_paged_attention_params &params) {
    const int64_t most_positions = int64_t{params.max_blocks} * params.cache.block_size;
    return static_cast<int>((most_positions + kPartitionPositions - 1) / kPartitionPositions);
}

// Lengths are on the device: as many tiles as any lengths can make of so many tokens.
int64_t most_row_tiles(const octavo_paged_attention_params &params, int32_t group, int rows_per_tile) {
    return params.num_tokens * group / rows_per_tile + params.num_seqs;
}

template <class Kernel> void allow_shared_memory(Kernel kernel, int num_bytes) {
    require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, num_bytes),
            "asking for shared memory");
}

template <class T, int kHeadSize, int kWarps> void launch(const Batch &batch, void *memory, cudaStream_t stream) {
    constexpr int kBytes = Layout<T, kHeadSize, kWarps>::kBytes;
    const octavo_paged_attention_params &params = batch.params;
    const int64_t num_row_tiles = most_row_tiles(params, batch.group, kWarps * kRowsPerWarp);
    require_range("row tiles of the batch", num_row_tiles, 1, INT_MAX);
    dim3 grid(static_cast<unsigned>(num_row_tiles), params.cache.num_kv_heads);
    if (memory == nullptr) {
        allow_shared_memory(attend_in_one_pass<T, kHeadSize, kWarps>, kBytes);
        OCTAVO_LAUNCH((attend_in_one_pass<T, kHeadSize, kWarps>), grid, dim3(kWarps * 32), kBytes, stream, batch);
        require(cudaGetLastError(), "launching attention");
        return;
    }
    grid.z = most_partitions(params);
    const Workspace workspace(memory, params.num_tokens * params.num_heads, grid.z, kHeadSize);
    allow_shared_memory(attend_to_partition<T, kHeadSize, kWarps>, kBytes);
    OCTAVO_LAUNCH((attend_to_partition<T, kHeadSize, kWarps>), grid, dim3(kWarps * 32), kBytes, stream, batch,
                  workspace);
    require(cudaGetLastError(), "launching attention over partitions");
    OCTAVO_LAUNCH((merge_partitions<T, kHeadSize>), dim3(params.num_tokens, params.num_heads), dim3(kHeadSize / 2), 0,
                  stream, batch, workspace);
    require(cudaGetLastError(), "launching the merge of partitions");
}

// One warp where a sequence has few rows, as when it decodes; else several that share each tile of keys and values.
template <class T, int kHeadSize> void launch(const Batch &batch, void *memory, cudaStream_t stream) {
    constexpr int kWarps = sizeof(T) == 4 ? 2 : 4;
    if (batch.params.num_tokens == 0) return;
    if (batch.params.num_tokens * batch.group <= int64_t{kRowsPerWarp} * batch.params.num_seqs)
        launch<T, kHeadSize, 1>(batch, memory, stream);
    else
        launch<T, kHeadSize, kWarps>(batch, memory, stream);
}

template <class T> void launch(const Batch &batch, void *memory, cudaStream_t stream) {
    switch (batch.params.cache.head_size) {
    case 64:
        return launch<T, 64>(batch, memory, stream);
    case 80:
        return launch<T, 80>(batch, memory, stream);
    case 96:
        return launch<T, 96>(batch, memory, stream);
    case 128:
        return launch<T, 128>(batch, memory, stream);
    case 256:
        return launch<T, 256>(batch, memory, stream);
    default:
        throw ArgumentError("head_size is " + std::to_string(batch.params.cache.head_size) +
                            ", must be one of 64, 80, 96, 128, 256");
    }
}

void check(const octavo_paged_attention_params &params) {
    const octavo_cache &cache = params.cache;
    require_paged(cache, params.layer);
    require_range("num_tokens", params.num_tokens, 0, INT_MAX);
    require_range("num_seqs", params.num_seqs, 0, INT_MAX);
    require_range("num_heads", params.num_heads, 1, 65535);
    if (params.num_heads % cache.num_kv_heads != 0)
        refuse("num_heads", params.num_heads, "a multiple of " + std::to_string(cache.num_kv_heads));
    require_multiple("query_stride", params.query_stride, 8);
    for (const auto &[name, pointer] : {std::pair<const char *, const void *>{"query", params.query},
                                        {"output", params.output},
                                        {"query_starts", params.query_starts},
                                        {"context_lens", params.context_lens},
                                        {"block_tables", params.block_tables}})
        require_pointer(name, pointer, params.num_tokens);
    require_aligned("query", params.query);
    require_aligned("output", params.output);
}

int64_t workspace_bytes(const octavo_paged_attention_params &params) {
    const int64_t num_partitions = most_partitions(params);
    if (num_partitions < 2) return 0;
    return num_partitions * params.num_tokens * params.num_heads * (params.cache.head_size + 2) * int{sizeof(float)};
}

} // namespace
} // namespace octavo::cuda

int64_t octavo_cuda_attention_workspace_bytes(octavo_paged_attention_params params) {
    return octavo::cuda::workspace_bytes(params);
}

int32_t octavo_cuda_paged_attention(octavo_paged_attention_params params, void *workspace, octavo_cuda_stream stream) {
    using namespace octavo::cuda;
    return guarded([&] {
        octavo::cuda::check(params);
        octavo::require_range("block_tables' longest context in partitions", most_partitions(params), 0, 65535);
        const Batch batch = {params, params.num_heads / params.cache.num_kv_heads, log2_of(params.cache.block_size)};
        void *memory = workspace_bytes(params) == 0 ? nullptr : workspace;
        with_element(params.cache.dtype,
                     [&](auto element) { launch<decltype(element)>(batch, memory, stream_of(stream)); });
    });
}
