#include <algorithm>

#include "arguments.h"
#include "copy_tracks.h"
#include "elements.h"
#include "entry.h"
#include "layout.h"
#include "transfer_plan.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoadsInFlight = 4;
constexpr int kColumnsPerBlock = kThreads * kLoadsInFlight;
constexpr int64_t kMostTracksAtOnce = 65535; // of a grid's second dimension

using Column = Pack<float>; // 16 bytes at the same place of every block

struct Schedule {
    const int64_t *starts; // [num_tracks + 1]
    const int64_t *moves;  // [num_moves][2]
    int64_t num_tracks;
};

// The columns of one thread, a thread block's width apart.
struct Columns {
    Column values[kLoadsInFlight];
};

__device__ Columns read(const Column *block, int64_t first, int64_t end) {
    Columns columns;
#pragma unroll
    for (int i = 0; i < kLoadsInFlight; ++i)
        if (first + i * kThreads < end) columns.values[i] = block[first + i * kThreads];
    return columns;
}

__device__ void write(Column *block, int64_t first, int64_t end, const Columns &columns) {
#pragma unroll
    for (int i = 0; i < kLoadsInFlight; ++i)
        if (first + i * kThreads < end) block[first + i * kThreads] = columns.values[i];
}

// Grid: x the columns of a block, kColumnsPerBlock a thread block; y the tracks. No thread touches another's columns.
__global__ void __launch_bounds__(kThreads) copy_blocks(Column *pool, int64_t num_columns, Schedule schedule) {
    const int64_t first = int64_t{blockIdx.x} * kColumnsPerBlock + threadIdx.x;
    for (int64_t track = blockIdx.y; track < schedule.num_tracks; track += gridDim.y) {
        Columns spare{};
        for (int64_t move = schedule.starts[track]; move < schedule.starts[track + 1]; ++move) {
            const int64_t source = schedule.moves[2 * move], destination = schedule.moves[2 * move + 1];
            const Columns columns = source == kSpare ? spare : read(pool + source * num_columns, first, num_columns);
            if (destination == kSpare)
                spare = columns;
            else
                write(pool + destination * num_columns, first, num_columns, columns);
        }
    }
}

void launch_copies(const octavo_cache &cache, const CopyTracks &tracks, int64_t *on_device, cudaStream_t stream) {
    const size_t num_starts = tracks.starts.size();
    const int64_t num_columns = block_bytes(cache) / static_cast<int64_t>(sizeof(Column));
    const dim3 grid(quotient_rounded_up(num_columns, kColumnsPerBlock),
                    std::min(tracks.num_tracks(), kMostTracksAtOnce));
    OCTAVO_LAUNCH(copy_blocks, grid, dim3(kThreads), 0, stream, static_cast<Column *>(cache.pool), num_columns,
                  Schedule{on_device, on_device + num_starts, tracks.num_tracks()});
}

void copy_blocks(const octavo_copy_blocks_params &params, cudaStream_t stream) {
    const CopyTracks tracks = plan_tracks(params.pairs, params.num_pairs);
    if (tracks.num_tracks() == 0) return;
    std::vector<int64_t> schedule(tracks.starts);
    schedule.insert(schedule.end(), tracks.moves.begin(), tracks.moves.end());
    const size_t num_bytes = schedule.size() * sizeof(int64_t);
    void *on_device = nullptr;
    require(cudaMallocAsync(&on_device, num_bytes, stream), "allocating the list of copies");
    const cudaError_t sent = cudaMemcpyAsync(on_device, schedule.data(), num_bytes, cudaMemcpyDefault, stream);
    if (sent == cudaSuccess) launch_copies(params.cache, tracks, static_cast<int64_t *>(on_device), stream);
    const cudaError_t launched = cudaGetLastError();
    const cudaError_t freed = cudaFreeAsync(on_device, stream);
    require(sent, "sending the list of copies");
    require(launched, "launching copies of blocks");
    require(freed, "freeing the list of copies");
}

// What `later` gets from now on waits for what `earlier` holds now.
void follow(cudaStream_t later, cudaStream_t earlier) {
    cudaEvent_t event = nullptr;
    require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
    const cudaError_t recorded = cudaEventRecord(event, earlier);
    const cudaError_t waits = recorded == cudaSuccess ? cudaStreamWaitEvent(later, event, 0) : recorded;
    const cudaError_t destroyed = cudaEventDestroy(event); // lives on until it has happened
    require(waits, "ordering two streams");
    require(destroyed, "destroying an event");
}

void swap_blocks(const octavo_swap_blocks_params &params, cudaStream_t copies, cudaStream_t compute) {
    const std::vector<Run> runs = plan_swaps(params.pairs, params.num_pairs);
    if (runs.empty()) return;
    const int64_t bytes = block_bytes(params.source);
    const char *source = static_cast<const char *>(params.source.pool);
    char *destination = static_cast<char *>(params.destination.pool);
    follow(copies, compute);
    for (const Run &run : runs)
        require(cudaMemcpyAsync(destination + run.destination * bytes, source + run.source * bytes,
                                run.num_blocks * bytes, cudaMemcpyDefault, copies),
                "swapping blocks");
    follow(compute, copies);
}

void check(const octavo_copy_blocks_params &params) {
    check_cache(params.cache, OCTAVO_FLOAT16);
    require_aligned("pool", params.cache.pool);
    check_pairs(params.pairs, params.num_pairs, params.cache.num_blocks, params.cache.num_blocks);
}

void check(const octavo_swap_blocks_params &params) {
    check_cache(params.source, OCTAVO_FLOAT16);
    check_cache(params.destination, OCTAVO_FLOAT16);
    check_same_blocks(params.source, params.destination);
    check_pairs(params.pairs, params.num_pairs, params.source.num_blocks, params.destination.num_blocks);
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_copy_blocks(octavo_copy_blocks_params params, octavo_cuda_stream stream) {
    using namespace octavo::cuda;
    return guarded([&] {
        octavo::cuda::check(params);
        copy_blocks(params, stream_of(stream));
    });
}

int32_t octavo_cuda_swap_blocks(octavo_swap_blocks_params params, octavo_cuda_stream copies,
                                octavo_cuda_stream compute) {
    using namespace octavo::cuda;
    return guarded([&] {
        octavo::cuda::check(params);
        swap_blocks(params, stream_of(copies), stream_of(compute));
    });
}
