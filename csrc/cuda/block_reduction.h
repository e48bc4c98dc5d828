// Sums and the like over a thread block, in one fixed order, known to every thread.
#pragma once

#include "runtime.h"

namespace octavo::cuda {

constexpr int kWarpSize = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;

struct Add {
    template <class T> __device__ T operator()(T a, T b) const { return a + b; }
};

template <class T, class Combine> __device__ inline T reduce_warp(T value, Combine combine) {
#pragma unroll
    for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
    return value;
}

// `shared` has room for one value a warp. All threads of a block of whole warps call this.
template <int kThreads, class T, class Combine> __device__ inline T reduce_block(T value, Combine combine, T *shared) {
    static_assert(kThreads % kWarpSize == 0);
    value = reduce_warp(value, combine);
    if (threadIdx.x % kWarpSize == 0) shared[threadIdx.x / kWarpSize] = value;
    __syncthreads(); // all warps' results are there
    T result = shared[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarpSize; ++warp) result = combine(result, shared[warp]);
    __syncthreads(); // whoever comes next may write `shared` again
    return result;
}

} // namespace octavo::cuda
