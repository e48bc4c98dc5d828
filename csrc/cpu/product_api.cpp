// The C entry points of octavo_product.h.
#include "octavo_product.h"

#include <omp.h>

#include <string>
#include <vector>

#include "aligned_memory.h"
#include "guarded.h"
#include "product.h"
#include "requirements.h"

namespace octavo {
namespace {

void require_format(int32_t format) { require_range("format", format, OCTAVO_WEIGHT_FLOAT32, OCTAVO_WEIGHT_Q6_K); }

void require_shape(int32_t format, int64_t num_outputs, int64_t num_inputs) {
    require_format(format);
    require_positive("num_outputs", num_outputs);
    require_positive("num_inputs", num_inputs);
    const int block = inputs_per_block(format);
    if (num_inputs % block != 0)
        refuse("num_inputs", num_inputs, "a multiple of " + std::to_string(block) + " in this format");
}

void require_packed(const char *name, const void *packed) {
    require_pointer(name, packed, 1);
    if (reinterpret_cast<uintptr_t>(packed) % 64 != 0)
        throw ArgumentError(std::string(name) + " is not at a multiple of 64 bytes");
}

void check(const octavo_matrix &weights) {
    require_shape(weights.format, weights.num_outputs, weights.num_inputs);
    require_packed("weights.data", weights.data);
}

void check(const octavo_product_params &params) {
    check(params.weights);
    require_range("precision", params.precision, OCTAVO_PRECISION_FLOAT32, OCTAVO_PRECISION_INT8);
    require_multiplied("weights.format", params.weights.format, params.precision);
    require_range("num_rows", params.num_rows, 0, INT64_MAX);
    require_pointer("x", params.x, params.num_rows);
    require_pointer("y", params.y, params.num_rows);
}

// Panels are shared out evenly; every thread prepares some of the rows.
void multiply(const octavo_product_params &params) {
    const ProductKernels &kernels = product_kernels(params.precision);
    const PackedMatrix &weights = params.weights;
    const int64_t row_bytes = kernels.activation_bytes(weights.num_inputs);
    const int64_t scratch_bytes = kernels.scratch_bytes(weights.num_inputs);
    const int num_threads = omp_get_max_threads();
    const AlignedMemory rows(params.num_rows * row_bytes), scratch(num_threads * scratch_bytes);
    const int64_t panels = num_panels(weights.num_outputs);
#pragma omp parallel num_threads(num_threads)
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
#pragma omp for
        for (int64_t row = 0; row < params.num_rows; ++row)
            kernels.prepare(params.x + row * weights.num_inputs, weights.num_inputs, rows.get() + row * row_bytes);
        kernels.multiply(weights, rows.get(), params.num_rows, panels * thread / team, panels * (thread + 1) / team,
                         params.y, weights.num_outputs, scratch.get() + thread * scratch_bytes);
    }
}

void unpack(const octavo_unpack_params &params) {
    for (int64_t row = 0; row < params.num_rows; ++row)
        unpack_row(params.weights, params.outputs[row], params.rows + row * params.weights.num_inputs);
}

} // namespace

void require_multiplied(const std::string &name, int32_t format, int32_t precision) {
    if (precision == OCTAVO_PRECISION_INT8 && !is_quantized(format))
        refuse(name, format, "a quantized format with activations in int8");
}

} // namespace octavo

int64_t octavo_cpu_packed_bytes(int32_t format, int64_t num_outputs, int64_t num_inputs) {
    int64_t bytes = 0;
    octavo::guarded([&] {
        octavo::require_shape(format, num_outputs, num_inputs);
        bytes = octavo::packed_bytes(format, num_outputs, num_inputs);
    });
    return bytes;
}

int32_t octavo_cpu_pack(octavo_pack_params params) {
    return octavo::guarded([&] {
        octavo::require_shape(params.format, params.num_outputs, params.num_inputs);
        octavo::require_pointer("rows", params.rows, 1);
        octavo::require_packed("packed", params.packed);
        octavo::pack(params.format, params.rows, params.num_outputs, params.num_inputs, params.packed);
    });
}

int32_t octavo_cpu_product(octavo_product_params params) {
    return octavo::guarded([&] {
        octavo::check(params);
        octavo::multiply(params);
    });
}

int32_t octavo_cpu_unpack(octavo_unpack_params params) {
    return octavo::guarded([&] {
        octavo::check(params.weights);
        octavo::require_range("num_rows", params.num_rows, 0, INT64_MAX);
        octavo::require_pointer("outputs", params.outputs, params.num_rows);
        octavo::require_pointer("rows", params.rows, params.num_rows);
        for (int64_t row = 0; row < params.num_rows; ++row)
            octavo::require_range(octavo::at("outputs", row), params.outputs[row], 0, params.weights.num_outputs - 1);
        octavo::unpack(params);
    });
}
