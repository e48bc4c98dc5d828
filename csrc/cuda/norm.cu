#include "block_reduction.h"
#include "elements.h"
#include "entry.h"
#include "row_arguments.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

// One token's rows. Every thread visits the same channels in each phase, so that it reads back only what it wrote.
template <class T> struct Row {
    const T *input; // null adds nothing
    float *residual;
    T *output;
    int32_t size;

    template <class Visit> __device__ void each_pack(Visit visit) const {
        for (int32_t channel = threadIdx.x * Pack<T>::kSize; channel < size; channel += kThreads * Pack<T>::kSize)
            visit(channel, load_floats<T>(residual + channel));
    }
};

template <class T> __device__ Row<T> row_of(const octavo_norm_params &params, int64_t token) {
    const int64_t start = token * params.hidden_size;
    const T *input = static_cast<const T *>(params.input);
    return {input == nullptr ? nullptr : input + start, params.residual + start,
            static_cast<T *>(params.output) + start, params.hidden_size};
}

template <class T> __device__ void add_input(const Row<T> &row) {
    if (row.input == nullptr) return;
    row.each_pack([&](int32_t channel, Floats<T> sums) {
        const Pack<T> added = load(row.input + channel);
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) sums[i] += to_float(added.values[i]);
        store_floats<T>(row.residual + channel, sums);
    });
}

template <class T> __device__ float mean_of(const Row<T> &row, float *shared) {
    float sum = 0;
    row.each_pack([&](int32_t, const Floats<T> &values) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) sum += values[i];
    });
    return reduce_block<kThreads>(sum, Add{}, shared) / row.size;
}

template <class T> __device__ float mean_square_around(float center, const Row<T> &row, float *shared) {
    float sum = 0;
    row.each_pack([&](int32_t, const Floats<T> &values) {
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i) sum += (values[i] - center) * (values[i] - center);
    });
    return reduce_block<kThreads>(sum, Add{}, shared) / row.size;
}

template <class T>
__device__ void write_scaled(const Row<T> &row, float center, float scale, const float *weight, const float *bias) {
    row.each_pack([&](int32_t channel, const Floats<T> &values) {
        const Floats<T> weights = load_floats<T>(weight + channel);
        const Floats<T> biases = bias == nullptr ? Floats<T>{} : load_floats<T>(bias + channel);
        Pack<T> scaled;
#pragma unroll
        for (int i = 0; i < Pack<T>::kSize; ++i)
            scaled.values[i] = from_float<T>((values[i] - center) * scale * weights[i] + biases[i]);
        store(row.output + channel, scaled);
    });
}

// Grid: one block a token.
template <class T, bool kCentered> __global__ void __launch_bounds__(kThreads) norm(octavo_norm_params params) {
    OCTAVO_SHARED(float, shared, kThreads / kWarpSize);
    const Row<T> row = row_of<T>(params, blockIdx.x);
    add_input(row);
    const float center = kCentered ? mean_of(row, shared) : 0;
    const float scale = 1 / sqrtf(mean_square_around(center, row, shared) + params.epsilon);
    write_scaled(row, center, scale, params.weight, params.bias);
}

void check(const octavo_norm_params &params) {
    check_norm(params);
    require_aligned("input", params.input);
    require_aligned("residual", params.residual);
    require_aligned("weight", params.weight);
    require_aligned("bias", params.bias);
    require_aligned("output", params.output);
}

template <bool kCentered> int32_t run(const octavo_norm_params &params, octavo_cuda_stream stream) {
    return guarded([&] {
        check(params);
        with_element(params.dtype, [&](auto element) {
            if (params.num_tokens == 0) return;
            OCTAVO_LAUNCH((norm<decltype(element), kCentered>), dim3(params.num_tokens), dim3(kThreads), 0,
                          stream_of(stream), params);
            require(cudaGetLastError(), kCentered ? "launching layer norm" : "launching RMS norm");
        });
    });
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_rms_norm(octavo_norm_params params, octavo_cuda_stream stream) {
    params.bias = nullptr;
    return octavo::cuda::run<false>(params, stream);
}

int32_t octavo_cuda_layer_norm(octavo_norm_params params, octavo_cuda_stream stream) {
    return octavo::cuda::run<true>(params, stream);
}
