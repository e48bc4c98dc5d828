// Kernels over paged KV memory: the C interface of every device.
//
// Nothing here knows torch or Python. Parameters travel in structs passed by value; a kernel of another device takes
// the same struct. Pointers are to memory of that device and are used during the call only. Strides and offsets are in
// elements, not bytes. A call that does not return OCTAVO_OK wrote nothing.
//
//   pool  [num_blocks][num_layers][K|V][num_kv_heads][block_size][head_size]
//   slot  block_id * block_size + offset: the place of one token
#ifndef OCTAVO_H
#define OCTAVO_H

#include <stdint.h>

#define OCTAVO_ABI_VERSION 1

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

// As if all blocks were read before any is written.
OCTAVO_API int32_t octavo_cpu_copy_blocks(octavo_copy_blocks_params params);

// Between two pools that do not overlap; runs of ids adjacent in both are one copy.
OCTAVO_API int32_t octavo_cpu_swap_blocks(octavo_swap_blocks_params params);

#ifdef __cplusplus
}
#endif
#endif
