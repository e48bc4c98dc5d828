// What an instruction set has to offer for single rows: norms, rotary, activations. Single-threaded, without
// allocation.
//
// row_kernel.cpp is compiled once per instruction set. Rows are float32 and need no alignment; sizes are multiples
// of 8. A function may write to a row that it reads, at the same place. What comes out depends on the row alone: its
// sums run in one order.
#pragma once

#include <cstdint>

namespace octavo {

struct RowKernels {
    // Between float32 and `dtype` (octavo_dtype: float32 or bfloat16, rounded to nearest even).
    void (*widen)(const void *row, int dtype, int64_t size, float *out);
    void (*narrow)(const float *row, int64_t size, int dtype, void *out);

    // sum[i] += row[i]
    void (*add)(const float *row, int64_t size, float *sum);

    // row / sqrt(mean(row²) + epsilon) * weight
    void (*rms_norm)(const float *row, const float *weight, int64_t size, float epsilon, float *out);

    // (row - mean) / sqrt(variance + epsilon) * weight + bias; a null bias adds nothing
    void (*layer_norm)(const float *row, const float *weight, const float *bias, int64_t size, float epsilon,
                       float *out);

    // Turns the pairs (i, i + head_size / 2) of each head, in place. `head_size` is a multiple of 16.
    void (*rotate)(float *heads, int num_heads, int head_size, // [num_heads][head_size]
                   const float *cosines, const float *sines);  // [head_size / 2]

    // silu(gate) * up
    void (*silu_mul)(const float *gate, const float *up, int64_t size, float *out);

    // With the error function; absolute error below 2e-7 * |x|.
    void (*gelu)(const float *row, int64_t size, float *out);

    // With the approximation by tanh.
    void (*gelu_tanh)(const float *row, int64_t size, float *out);
};

extern const RowKernels row_kernels_portable;
#if defined(__x86_64__)
extern const RowKernels row_kernels_avx2;
extern const RowKernels row_kernels_avx512;
#endif

// Those of the selected instruction set.
const RowKernels &row_kernels();

} // namespace octavo
