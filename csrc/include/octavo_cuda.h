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

typedef struct octavo_rotary_params {
    void *heads;              // [num_tokens][num_heads][head_size], turned in place
    const float *cosines;     // [num_positions][head_size / 2]
    const float *sines;       // [num_positions][head_size / 2]
    const int64_t *positions; // [num_tokens], each below num_positions
    int64_t num_tokens;       //
    int64_t token_stride;     // from one token to the next, a multiple of 8
    int32_t num_heads;        //
    int32_t head_size;        // a multiple of 16; channel i is turned with channel i + head_size / 2
    int32_t dtype;            // octavo_dtype of heads
} octavo_rotary_params;

typedef struct octavo_norm_params {
    const void *input;   // [num_tokens][hidden_size], added to the residual first; null adds nothing
    float *residual;     // [num_tokens][hidden_size], float32: 16 bits would lose what large outliers leave of the rest
    const float *weight; // [hidden_size]
    const float *bias;   // [hidden_size], of layer norm only; null adds nothing
    void *output;        // [num_tokens][hidden_size]
    int64_t num_tokens;  //
    int32_t hidden_size; // a multiple of 8
    int32_t dtype;       // octavo_dtype of input and output
    float epsilon;
} octavo_norm_params;

typedef struct octavo_activation_params {
    const void *input;  // [num_tokens][width]; for silu-mul [num_tokens][2][width]: gates, then what they let through
    void *output;       // [num_tokens][width], no part of input
    int64_t num_tokens; //
    int32_t width;      // a multiple of 8
    int32_t dtype;      // octavo_dtype of input and output
} octavo_activation_params;

// How one row's token is chosen (docs/sampling.md).
typedef struct octavo_sampling_row {
    double top_p;             // 1 keeps all
    uint64_t seed;            //
    int64_t seen_start;       // the row's tokens in prompt or output: seen_token_ids[seen_start..seen_end)
    int64_t seen_end;         //
    uint32_t position;        // of the token in its sequence
    uint32_t choice_index;    //
    int32_t top_k;            // 0 keeps all
    float temperature;        // 0 takes the largest logit, the first of equals
    float log_min_p;          // natural logarithm of min_p; -infinity keeps all
    float repetition_penalty; // 1 changes nothing
    float frequency_penalty;  //
    float presence_penalty;
} octavo_sampling_row;

#define OCTAVO_NO_TOKEN 4294967295LL    // instead of a token: all logits of the row are -infinity
#define OCTAVO_LOGITS_NOT_FINITE (-1LL) // instead of a token: the row holds NaN or +infinity
#define OCTAVO_MAX_VOCAB_SIZE (1 << 18) // weights of so many tokens can be added in 64 bits

typedef struct octavo_sample_params {
    const void *logits;              // [num_rows][vocab_size], forbidden tokens -infinity, biases added
    const octavo_sampling_row *rows; // [num_rows]
    const int64_t *seen_token_ids;   // of all rows, all different within one
    const int64_t *output_counts;    // how often each of them is in the output
    float *workspace;                // [num_rows][vocab_size rounded up to a multiple of 4]
    int64_t *token_ids;              // [num_rows], the result
    int32_t num_rows;                //
    int32_t vocab_size;              // OCTAVO_MAX_VOCAB_SIZE at most
    int32_t dtype;                   // octavo_dtype of logits
} octavo_sample_params;

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

// Draws one token a row: penalties, temperature, min-p, top-k, top-p, then the inverse of the cumulative distribution
// at the Philox-4x32-10 number of (seed, choice index, position).
OCTAVO_API int32_t octavo_cuda_sample(octavo_sample_params params, octavo_cuda_stream stream);

#ifdef __cplusplus
}
#endif
#endif
