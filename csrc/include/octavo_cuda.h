// CUDA kernels over paged KV memory and around it: what octavo.h has for the CPU, and what a model needs besides.
//
// Pointers are to device memory unless a comment says otherwise. A call hands its work to a stream and returns; arrays
// in host memory are read before it does, all others when the stream comes to them. What lies in host memory and the
// shapes are checked; slots, positions and token ids in device memory are not.
#ifndef OCTAVO_CUDA_H
#define OCTAVO_CUDA_H

#include "octavo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef void *octavo_cuda_stream; // cudaStream_t; null is the default stream

// Blocks of 1, 2, 4 … 256 tokens; key_stride and value_stride are multiples of 8.
OCTAVO_API int32_t octavo_cuda_write_kv(octavo_write_kv_params params, octavo_cuda_stream stream);

// Bytes that octavo_cuda_paged_attention needs to split contexts over thread blocks; 0 where one pass is all there is.
OCTAVO_API int64_t octavo_cuda_attention_workspace_bytes(octavo_paged_attention_params params);

// Head sizes 64, 80, 96, 128 and 256; blocks of 1, 2, 4 … 256 tokens; query_stride is a multiple of 8. With a workspace
// the context is split over thread blocks, which pays off where sequences are few and contexts long; null takes one
// pass. The bits of the result are the same.
OCTAVO_API int32_t octavo_cuda_paged_attention(octavo_paged_attention_params params, void *workspace,
                                               octavo_cuda_stream stream);

// As if all blocks were read before any is written. `pairs` lies in host memory. One launch for all layers and pairs.
OCTAVO_API int32_t octavo_cuda_copy_blocks(octavo_copy_blocks_params params, octavo_cuda_stream stream);

// Between a pool in device memory and one in pinned host memory, or two device pools, on `copies`: after all that
// `compute` holds at the call and before all that it gets later. Runs of ids adjacent in both are one copy. `pairs`
// lies in host memory.
OCTAVO_API int32_t octavo_cuda_swap_blocks(octavo_swap_blocks_params params, octavo_cuda_stream copies,
                                           octavo_cuda_stream compute);

OCTAVO_API int32_t octavo_cuda_rotary(octavo_rotary_params params, octavo_cuda_stream stream);

// residual += input; output = residual / sqrt(mean(residual²) + epsilon) * weight
OCTAVO_API int32_t octavo_cuda_rms_norm(octavo_norm_params params, octavo_cuda_stream stream);

// residual += input; output = (residual - mean) / sqrt(variance + epsilon) * weight + bias
OCTAVO_API int32_t octavo_cuda_layer_norm(octavo_norm_params params, octavo_cuda_stream stream);

// output = silu(gate) * up
OCTAVO_API int32_t octavo_cuda_silu_mul(octavo_activation_params params, octavo_cuda_stream stream);

// With the error function.
OCTAVO_API int32_t octavo_cuda_gelu(octavo_activation_params params, octavo_cuda_stream stream);

// With the approximation by tanh.
OCTAVO_API int32_t octavo_cuda_gelu_tanh(octavo_activation_params params, octavo_cuda_stream stream);

// Of the logits as they come, with masks, biases and forbidden tokens applied: what octavo_sampling_row has of these is
// not looked at, and logits_rows, logprobs and top_token_ids must be null. A row of -infinity only has OCTAVO_NO_TOKEN.
//
// Draws one token a row: penalties, temperature, min-p, top-k, top-p, then the inverse of the cumulative distribution
// at the Philox-4x32-10 number of (seed, choice index, position).
OCTAVO_API int32_t octavo_cuda_sample(octavo_sample_params params, octavo_cuda_stream stream);

#ifdef __cplusplus
}
#endif
#endif
