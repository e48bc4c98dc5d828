#include "elements.h"
#include "entry.h"
#include "row_arguments.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 256;

struct SiluMul {
    static constexpr int kNumInputs = 2;
    __device__ static float apply(float gate, float up) { return gate / (1 + expf(-gate)) * up; }
};

struct Gelu {
    static constexpr int kNumInputs = 1;
    __device__ static float apply(float x, float) { return 0.5f * x * (1 + erff(x * 0.70710678118654752f)); }
};

struct GeluTanh {
    static constexpr int kNumInputs = 1;
    __device__ static float apply(float x, float) {
        return 0.5f * x * (1 + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    }
};

// Grid: the packs of the output, kThreads a block.
template <class T, class Function>
__global__ void __launch_bounds__(kThreads) activate(octavo_activation_params params, int64_t num_packs) {
    const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
    if (pack >= num_packs) return;
    const int64_t place = pack * Pack<T>::kSize;
    const int64_t token = place / params.width;
    const T *input = static_cast<const T *>(params.input) + place + (Function::kNumInputs - 1) * token * params.width;
    const Pack<T> first = load(input);
    const Pack<T> second = Function::kNumInputs == 2 ? load(input + params.width) : first;
    Pack<T> result;
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
        result.values[i] = from_float<T>(Function::apply(to_float(first.values[i]), to_float(second.values[i])));
    store(static_cast<T *>(params.output) + place, result);
}

void check(const octavo_activation_params &params) {
    check_activation(params);
    require_aligned("input", params.input);
    require_aligned("output", params.output);
}

template <class T, class Function> void launch(const octavo_activation_params &params, cudaStream_t stream) {
    const int64_t num_packs = params.num_tokens * (params.width / Pack<T>::kSize);
    const int64_t num_blocks = quotient_rounded_up(num_packs, kThreads);
    require_range("num_tokens * width in thread blocks", num_blocks, 0, INT32_MAX);
    if (num_blocks == 0) return;
    OCTAVO_LAUNCH((activate<T, Function>), dim3(num_blocks), dim3(kThreads), 0, stream, params, num_packs);
    require(cudaGetLastError(), "launching an activation");
}

template <class Function> int32_t run(const octavo_activation_params &params, octavo_cuda_stream stream) {
    return guarded([&] {
        check(params);
        with_element(params.dtype,
                     [&](auto element) { launch<decltype(element), Function>(params, stream_of(stream)); });
    });
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_silu_mul(octavo_activation_params params, octavo_cuda_stream stream) {
    return octavo::cuda::run<octavo::cuda::SiluMul>(params, stream);
}

int32_t octavo_cuda_gelu(octavo_activation_params params, octavo_cuda_stream stream) {
    return octavo::cuda::run<octavo::cuda::Gelu>(params, stream);
}

int32_t octavo_cuda_gelu_tanh(octavo_activation_params params, octavo_cuda_stream stream) {
    return octavo::cuda::run<octavo::cuda::GeluTanh>(params, stream);
}
