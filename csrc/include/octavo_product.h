// Products with packed weights, y = x W^T: the C interface of the CPU's.
//
// Weights stay as they come, in float32, bfloat16 or blocks of a GGUF file; packing only rearranges them. See octavo.h
// for the conventions.
#ifndef OCTAVO_PRODUCT_H
#define OCTAVO_PRODUCT_H

#include "octavo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octavo_weight_format {
    OCTAVO_WEIGHT_FLOAT32 = 0,
    OCTAVO_WEIGHT_BFLOAT16 = 1,
    OCTAVO_WEIGHT_Q8_0 = 2, // from here on GGUF's own blocks
    OCTAVO_WEIGHT_Q4_0 = 3,
    OCTAVO_WEIGHT_Q4_1 = 4,
    OCTAVO_WEIGHT_Q4_K = 5,
    OCTAVO_WEIGHT_Q6_K = 6,
} octavo_weight_format;

typedef struct octavo_matrix {
    const void *data;    // as octavo_cpu_pack left it
    int64_t num_outputs; // y = x W^T
    int64_t num_inputs;  // a multiple of the format's block: 1, 32 (Q8_0, Q4_0, Q4_1) or 256 (Q4_K, Q6_K)
    int32_t format;      // octavo_weight_format
} octavo_matrix;

// In what the products are computed; sums are float32 always, but of the integers of 32 inputs.
typedef enum octavo_precision {
    OCTAVO_PRECISION_FLOAT32 = 0,  // weights and activations in float32
    OCTAVO_PRECISION_BFLOAT16 = 1, // both rounded to bfloat16 where the machine multiplies that faster, else float32
    // Activations rounded to signed bytes, each 32 of them with a scale; weights must be quantized, and are not
    // rounded.
    OCTAVO_PRECISION_INT8 = 2,
} octavo_precision;

typedef struct octavo_pack_params {
    const void *rows; // [num_outputs][num_inputs] in the format, row after row
    void *packed;     // octavo_cpu_packed_bytes of them, at a multiple of 64
    int64_t num_outputs;
    int64_t num_inputs;
    int32_t format;
} octavo_pack_params;

typedef struct octavo_product_params {
    octavo_matrix weights;
    const float *x; // [num_rows][num_inputs]
    float *y;       // [num_rows][num_outputs]
    int64_t num_rows;
    int32_t precision; // octavo_precision
} octavo_product_params;

typedef struct octavo_unpack_params {
    octavo_matrix weights;
    const int64_t *outputs; // [num_rows], any of the matrix, in any order
    float *rows;            // [num_rows][num_inputs]
    int64_t num_rows;
} octavo_unpack_params;

// Bytes of a packed matrix; 0 of one that octavo_cpu_pack would refuse.
OCTAVO_API int64_t octavo_cpu_packed_bytes(int32_t format, int64_t num_outputs, int64_t num_inputs);

// What is packed is the same on every machine.
OCTAVO_API int32_t octavo_cpu_pack(octavo_pack_params params);

// A row of y has the same bits whatever other rows there are and however many threads compute.
OCTAVO_API int32_t octavo_cpu_product(octavo_product_params params);

// Single rows of the weights, dequantized exactly: what an embedding looks up.
OCTAVO_API int32_t octavo_cpu_unpack(octavo_unpack_params params);

#ifdef __cplusplus
}
#endif
#endif
