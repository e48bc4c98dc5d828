// Kernels over paged KV memory: the C interface of every device.
//
// Nothing here knows torch or Python. Parameters travel in structs passed by value; a kernel of another device takes
// the same struct. Pointers are to memory of that device and are used during the call only. Strides and offsets are in
// elements, not bytes. A call that does not return OCTAVO_OK wrote nothing.
//
//   pool  [num_blocks][num_layers][K|V][num_kv_heads][block_size][head_size]
//   slot  block_id * block_size + offset: the place of one token
//
// On the CPU a layer of a block takes as much room and is laid out in another way (cpu/attention_blocks.h).
#ifndef OCTAVO_H
#define OCTAVO_H

#include <stdint.h>

#define OCTAVO_ABI_VERSION 2

#if defined(OCTAVO_BUILDING)
#define OCTAVO_API __attribute__((visibility("default")))
#else
#define OCTAVO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum octavo_status {
    OCTAVO_OK = 0,
    OCTAVO_INVALID_ARGUMENT = 1,
    OCTAVO_OUT_OF_MEMORY = 2,
    OCTAVO_DEVICE_ERROR = 3, // a call of the device's runtime failed
} octavo_status;

typedef enum octavo_dtype {
    OCTAVO_FLOAT32 = 0,
    OCTAVO_BFLOAT16 = 1,
    OCTAVO_FLOAT16 = 2, // CUDA only
} octavo_dtype;

typedef struct octavo_cache {
    void *pool;           // [num_blocks][num_layers][2][num_kv_heads][block_size][head_size]
    int64_t num_blocks;   //
    int32_t num_layers;   //
    int32_t num_kv_heads; //
    int32_t block_size;   // tokens
    int32_t head_size;    // elements, a multiple of 8
    int32_t dtype;        // octavo_dtype of the pool, of query, key, value and output
} octavo_cache;

typedef struct octavo_write_kv_params {
    octavo_cache cache;
    const void *key;             // [num_tokens][num_kv_heads][head_size]
    const void *value;           // [num_tokens][num_kv_heads][head_size]
    const int64_t *slot_mapping; // [num_tokens], all different
    int64_t num_tokens;          //
    int64_t key_stride;          // from one token to the next
    int64_t value_stride;        // from one token to the next
    int32_t layer;
} octavo_write_kv_params;

typedef struct octavo_paged_attention_params {
    octavo_cache cache;
    const void *query;           // [num_tokens][num_heads][head_size]
    void *output;                // [num_tokens][num_heads][head_size], contiguous
    const int32_t *query_starts; // [num_seqs + 1], from 0 to num_tokens, never falling
    const int32_t *context_lens; // [num_seqs], tokens with the new ones
    const int32_t *block_tables; // [num_seqs][max_blocks]
    int64_t num_tokens;          //
    int64_t query_stride;        // from one token to the next
    int32_t num_seqs;            //
    int32_t max_blocks;          // row length of block_tables
    int32_t num_heads;           // a multiple of num_kv_heads
    int32_t layer;               //
    float scale;                 // of query · key
} octavo_paged_attention_params;

typedef struct octavo_copy_blocks_params {
    octavo_cache cache;
    const int64_t *pairs; // [num_pairs][2]: source, destination; destinations all different
    int64_t num_pairs;
} octavo_copy_blocks_params;

typedef struct octavo_swap_blocks_params {
    octavo_cache source;
    octavo_cache destination;
    const int64_t *pairs; // [num_pairs][2]: block of source, block of destination; destinations all different
    int64_t num_pairs;
} octavo_swap_blocks_params;

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
    int64_t num_positions;    // on the CPU positions are checked
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

// How one row's token is chosen (docs/sampling.md). A span [start, end) is of an array of octavo_sample_params; an
// empty one has no effect.
typedef struct octavo_sampling_row {
    double top_p;             // 1 keeps all
    uint64_t seed;            //
    int64_t seen_start;       // seen_token_ids and output_counts: the row's tokens in prompt or output
    int64_t seen_end;         //
    int64_t mask_start;       // masks: the bytes of all tokens
    int64_t mask_end;         //
    int64_t allowed_start;    // allowed_token_ids
    int64_t allowed_end;      //
    int64_t forbidden_start;  // forbidden_token_ids
    int64_t forbidden_end;    //
    int64_t biased_start;     // biased_token_ids and biases
    int64_t biased_end;       //
    int64_t top_start;        // first place of its num_top in top_token_ids and top_logprobs
    int32_t num_top;          // most probable tokens to tell
    int32_t is_known;         // its token stands in token_ids already; only log-probabilities are asked
    uint32_t position;        // of the token in its sequence
    uint32_t choice_index;    //
    int32_t top_k;            // 0 keeps all
    float temperature;        // 0 takes the largest logit, the first of equals
    float log_min_p;          // natural logarithm of min_p; -infinity keeps all
    float repetition_penalty; // 1 changes nothing
    float frequency_penalty;  //
    float presence_penalty;
} octavo_sampling_row;

#define OCTAVO_NO_TOKEN 4294967295LL    // instead of a token: all tokens are forbidden
#define OCTAVO_LOGITS_NOT_FINITE (-1LL) // instead of a token: NaN or +infinity; on the CPU also if all are -infinity
#define OCTAVO_MAX_VOCAB_SIZE (1 << 18) // weights of so many tokens can be added in 64 bits

typedef struct octavo_sample_params {
    const void *logits;                 // [num_logits][vocab_size], of the model
    const int64_t *logits_rows;         // [num_rows], of which row of logits each is; null: of its own
    const octavo_sampling_row *rows;    // [num_rows]
    const uint8_t *masks;               // a bit a token, the lowest first, 1 where it may be drawn
    const int64_t *allowed_token_ids;   //
    const int64_t *forbidden_token_ids; //
    const int64_t *biased_token_ids;    // all different within a row
    const float *biases;                // of each of them
    const int64_t *seen_token_ids;      // all different within a row
    const int64_t *output_counts;       // how often each of them is in the output
    float *workspace;                   // CUDA only: [num_rows][vocab_size rounded up to a multiple of 4]
    int64_t *token_ids;                 // [num_rows], the result
    float *logprobs;                    // [num_rows], by the model's own distribution; null: not asked
    int64_t *top_token_ids;             // the most probable ones, best first, the first of equals
    float *top_logprobs;                //
    int64_t num_logits;                 //
    int32_t num_rows;                   //
    int32_t vocab_size;                 // OCTAVO_MAX_VOCAB_SIZE at most
    int32_t dtype;                      // octavo_dtype of logits
} octavo_sample_params;

// Version of this interface: a caller built for another must refuse the library.
OCTAVO_API int32_t octavo_abi_version(void);

// What the last call on this thread that did not return OCTAVO_OK complained about. Valid until the next such call.
OCTAVO_API const char *octavo_last_error(void);

// Instruction set in use: "amx", "avx512_bf16", "avx512", "avx2" or "portable".
OCTAVO_API const char *octavo_cpu_isa(void);

// Uses another instruction set from the next call on; "auto" is the best that this machine has. For tests.
OCTAVO_API int32_t octavo_cpu_select_isa(const char *name);

OCTAVO_API int32_t octavo_cpu_write_kv(octavo_write_kv_params params);
OCTAVO_API int32_t octavo_cpu_paged_attention(octavo_paged_attention_params params);

// For benchmarks: reads `num_bytes` of 32-byte aligned memory, rounded down to a multiple of 256, with all threads and
// does nothing with them. Returns the exclusive or of all words.
OCTAVO_API uint64_t octavo_cpu_read(const void *memory, int64_t num_bytes);

// As if all blocks were read before any is written.
OCTAVO_API int32_t octavo_cpu_copy_blocks(octavo_copy_blocks_params params);

// Between two pools that do not overlap; runs of ids adjacent in both are one copy.
OCTAVO_API int32_t octavo_cpu_swap_blocks(octavo_swap_blocks_params params);

OCTAVO_API int32_t octavo_cpu_rotary(octavo_rotary_params params);

// residual += input; output = residual / sqrt(mean(residual²) + epsilon) * weight
OCTAVO_API int32_t octavo_cpu_rms_norm(octavo_norm_params params);

// residual += input; output = (residual - mean) / sqrt(variance + epsilon) * weight + bias
OCTAVO_API int32_t octavo_cpu_layer_norm(octavo_norm_params params);

// output = silu(gate) * up
OCTAVO_API int32_t octavo_cpu_silu_mul(octavo_activation_params params);

// With the error function.
OCTAVO_API int32_t octavo_cpu_gelu(octavo_activation_params params);

// With the approximation by tanh.
OCTAVO_API int32_t octavo_cpu_gelu_tanh(octavo_activation_params params);

// Draws one token a row: rules, temperature, min-p, top-k, top-p, then the inverse of the cumulative distribution at
// the Philox-4x32-10 number of (seed, choice index, position). A row's result does not depend on the others.
OCTAVO_API int32_t octavo_cpu_sample(octavo_sample_params params);

#ifdef __cplusplus
}
#endif
#endif
