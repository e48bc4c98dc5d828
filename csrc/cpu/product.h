// Matrix products of packed weights: what a thread of a team calls on its share of the outputs.
#pragma once

#include <cstdint>
#include <string>

#include "octavo_product.h"
#include "packed_weights.h"

namespace octavo {

using PackedMatrix = octavo_matrix;

// Inputs that the format packs as one: 1, 32 or 256. num_inputs is a multiple of it.
int inputs_per_block(int32_t format);

// Blocks of a quantized file.
constexpr bool is_quantized(int32_t format) { return format >= OCTAVO_WEIGHT_Q8_0; }

// Throws ArgumentError where products in `precision` do not take `format`.
void require_multiplied(const std::string &name, int32_t format, int32_t precision);

int64_t packed_bytes(int32_t format, int64_t num_outputs, int64_t num_inputs);

// `rows` [num_outputs][num_inputs] as in the file; `packed` packed_bytes of memory at a multiple of 64.
void pack(int32_t format, const void *rows, int64_t num_outputs, int64_t num_inputs, void *packed);

// One output's weights, exactly: what an embedding looks up. `row` [num_inputs].
void unpack_row(const PackedMatrix &weights, int64_t output, float *row);

// The order in which a row's products are added depends on the instruction set and on nothing else: its bits are the
// same for any number of rows and any cut of the panels. Nothing is allocated.
struct ProductKernels {
    const char *isa;

    // Of one prepared row: a multiple of 64.
    int64_t (*activation_bytes)(int64_t num_inputs);

    // Turns a row [num_inputs] into what multiply reads; `prepared` lies at a multiple of 64.
    void (*prepare)(const float *row, int64_t num_inputs, void *prepared);

    // Of `scratch`, which lies at a multiple of 64; one per thread, its contents are of no matter.
    int64_t (*scratch_bytes)(int64_t num_inputs);

    // y[row * y_stride + output] for num_rows prepared rows, one after the other, and the outputs of the panels
    // [first_panel, last_panel). Outputs past the last are not written.
    void (*multiply)(const PackedMatrix &weights, const void *prepared, int64_t num_rows, int64_t first_panel,
                     int64_t last_panel, float *y, int64_t y_stride, void *scratch);
};

extern const ProductKernels product_kernels_portable;
extern const ProductKernels product_int8_kernels_portable;
#if defined(__x86_64__)
extern const ProductKernels product_kernels_avx2;
extern const ProductKernels product_kernels_avx512;
extern const ProductKernels product_bf16_kernels_avx512_bf16;
extern const ProductKernels product_bf16_kernels_amx;
extern const ProductKernels product_int8_kernels_avx2;
extern const ProductKernels product_int8_kernels_avx512;
extern const ProductKernels product_int8_kernels_avx512_bf16;
#endif

// Those of the selected instruction set; `precision` is an octavo_precision. Those for int8 take quantized formats
// only.
const ProductKernels &product_kernels(int32_t precision);

} // namespace octavo
