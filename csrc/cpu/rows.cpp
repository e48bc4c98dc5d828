#include "rows.h"

#include <omp.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "requirements.h"
#include "row_arguments.h"
#include "row_kernel.h"

namespace octavo {
namespace {

// Calls compute(token, scratch) for each token; `scratch` has `scratch_size` floats.
template <class Compute> void each_token(int64_t num_tokens, int64_t scratch_size, Compute compute) {
    const int num_threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), num_tokens));
    if (num_threads == 0) return;
    std::vector<float> scratch(num_threads * scratch_size);
#pragma omp parallel for schedule(static) num_threads(num_threads)
    for (int64_t token = 0; token < num_tokens; ++token)
        compute(token, scratch.data() + omp_get_thread_num() * scratch_size);
}

// Elements of the dtype at `offset`.
template <class Void> Void *at_element(Void *array, int64_t offset, int32_t dtype) {
    using Bytes = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return static_cast<Bytes *>(array) + offset * (dtype == OCTAVO_FLOAT32 ? 4 : 2);
}

// A row as float32, in `wide` if it is not so in memory.
const float *floats_at(const void *array, int64_t offset, int64_t size, int32_t dtype, float *wide) {
    if (dtype == OCTAVO_FLOAT32) return static_cast<const float *>(array) + offset;
    row_kernels().widen(at_element(array, offset, dtype), dtype, size, wide);
    return wide;
}

template <class Norm> void norm(const octavo_norm_params &params, Norm apply) {
    const int64_t size = params.hidden_size;
    each_token(params.num_tokens, 2 * size, [&](int64_t token, float *scratch) {
        float *residual = params.residual + token * size, *normed = scratch + size;
        if (params.input != nullptr)
            row_kernels().add(floats_at(params.input, token * size, size, params.dtype, scratch), size, residual);
        apply(residual, normed);
        row_kernels().narrow(normed, size, params.dtype, at_element(params.output, token * size, params.dtype));
    });
}

// apply(row of `num_inputs` * width, output of width)
template <class Function> void activate(const octavo_activation_params &params, int64_t num_inputs, Function apply) {
    const int64_t width = params.width, input_size = num_inputs * width;
    each_token(params.num_tokens, input_size + width, [&](int64_t token, float *scratch) {
        float *output = scratch + input_size;
        apply(floats_at(params.input, token * input_size, input_size, params.dtype, scratch), output);
        row_kernels().narrow(output, width, params.dtype, at_element(params.output, token * width, params.dtype));
    });
}

void check_dtype(int32_t dtype) { require_range("dtype", dtype, OCTAVO_FLOAT32, OCTAVO_BFLOAT16); }

} // namespace

void check(const octavo_rotary_params &params) {
    check_dtype(params.dtype);
    check_rotary(params);
    for (int64_t i = 0; i < params.num_tokens; ++i)
        require_range(at("positions", i), params.positions[i], 0, params.num_positions - 1);
}

void check(const octavo_norm_params &params) {
    check_dtype(params.dtype);
    check_norm(params);
}

void check(const octavo_activation_params &params) {
    check_dtype(params.dtype);
    check_activation(params);
}

void rotary(const octavo_rotary_params &params) {
    const int64_t size = int64_t{params.num_heads} * params.head_size, half = params.head_size / 2;
    each_token(params.num_tokens, size, [&](int64_t token, float *scratch) {
        void *heads = at_element(params.heads, token * params.token_stride, params.dtype);
        float *wide = params.dtype == OCTAVO_FLOAT32 ? static_cast<float *>(heads) : scratch;
        if (params.dtype != OCTAVO_FLOAT32) row_kernels().widen(heads, params.dtype, size, wide);
        const int64_t angle = params.positions[token] * half;
        row_kernels().rotate(wide, params.num_heads, params.head_size, params.cosines + angle, params.sines + angle);
        if (params.dtype != OCTAVO_FLOAT32) row_kernels().narrow(wide, size, params.dtype, heads);
    });
}

void rms_norm(const octavo_norm_params &params) {
    norm(params, [&](const float *row, float *out) {
        row_kernels().rms_norm(row, params.weight, params.hidden_size, params.epsilon, out);
    });
}

void layer_norm(const octavo_norm_params &params) {
    norm(params, [&](const float *row, float *out) {
        row_kernels().layer_norm(row, params.weight, params.bias, params.hidden_size, params.epsilon, out);
    });
}

void silu_mul(const octavo_activation_params &params) {
    activate(params, 2,
             [&](const float *row, float *out) { row_kernels().silu_mul(row, row + params.width, params.width, out); });
}

void gelu(const octavo_activation_params &params) {
    activate(params, 1, [&](const float *row, float *out) { row_kernels().gelu(row, params.width, out); });
}

void gelu_tanh(const octavo_activation_params &params) {
    activate(params, 1, [&](const float *row, float *out) { row_kernels().gelu_tanh(row, params.width, out); });
}

} // namespace octavo
