#include "elements.h"
#include "entry.h"
#include "row_arguments.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// One thread's share: a pack of channels in the first half of a head and its partners in the second.
struct Place {
    int64_t token;
    int32_t head;
    int32_t channel; // in the first half
};

template <class T> __device__ Place place_of(int64_t item, const octavo_rotary_params &params) {
    const int32_t packs = params.head_size / 2 / Pack<T>::kSize;
    const int64_t head = item / packs;
    return {head / params.num_heads, static_cast<int32_t>(head % params.num_heads),
            static_cast<int32_t>(item % packs) * Pack<T>::kSize};
}

template <class T>
__device__ void turn(Pack<T> &first, Pack<T> &second, const Floats<T> &cosines, const Floats<T> &sines) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i) {
        const float x = to_float(first.values[i]), y = to_float(second.values[i]);
        first.values[i] = from_float<T>(x * cosines[i] - y * sines[i]);
        second.values[i] = from_float<T>(y * cosines[i] + x * sines[i]);
    }
}

// Grid: the packs of the first halves of all heads, kThreads a block.
template <class T> __global__ void __launch_bounds__(kThreads) rotary(octavo_rotary_params params, int64_t num_items) {
    const int64_t item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (item >= num_items) return;
    const Place place = place_of<T>(item, params);
    const int32_t half = params.head_size / 2;
    T *head = static_cast<T *>(params.heads) + place.token * params.token_stride +
              int64_t{place.head} * params.head_size + place.channel;
    const int64_t angle = params.positions[place.token] * half + place.channel;
    Pack<T> first = load(head), second = load(head + half);
    turn<T>(first, second, load_floats<T>(params.cosines + angle), load_floats<T>(params.sines + angle));
    store(head, first);
    store(head + half, second);
}

void check(const octavo_rotary_params &params) {
    check_rotary(params);
    require_aligned("heads", params.heads);
    require_aligned("cosines", params.cosines);
    require_aligned("sines", params.sines);
}

template <class T> void launch(const octavo_rotary_params &params, cudaStream_t stream) {
    const int64_t num_items = params.num_tokens * params.num_heads * (params.head_size / 2 / Pack<T>::kSize);
    const int64_t num_blocks = quotient_rounded_up(num_items, kThreads);
    require_range("num_tokens * num_heads * head_size in thread blocks", num_blocks, 0, INT32_MAX);
    if (num_blocks == 0) return;
    OCTAVO_LAUNCH(rotary<T>, dim3(num_blocks), dim3(kThreads), 0, stream, params, num_items);
    require(cudaGetLastError(), "launching rotary");
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_rotary(octavo_rotary_params params, octavo_cuda_stream stream) {
    using namespace octavo::cuda;
    return guarded([&] {
        check(params);
        octavo::cuda::with_element(params.dtype,
                                   [&](auto element) { launch<decltype(element)>(params, stream_of(stream)); });
    });
}
