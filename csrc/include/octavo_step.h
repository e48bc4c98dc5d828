// A whole step of a model in one call: embedding, layers, final norm, logits, sampling. The C interface of the CPU's.
//
// Weights are packed once (octavo_product.h) into memory of the caller, who keeps it until the model is destroyed. A
// model is for one caller at a time. See octavo.h for the conventions.
#ifndef OCTAVO_STEP_H
#define OCTAVO_STEP_H

#include "octavo.h"
#include "octavo_product.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where the time of a step goes, by the clock of one thread.
typedef enum octavo_phase {
    OCTAVO_PHASE_NORMS = 0, // with the embedding
    OCTAVO_PHASE_QKV = 1,
    OCTAVO_PHASE_ROTARY_AND_KV = 2,
    OCTAVO_PHASE_ATTENTION = 3,
    OCTAVO_PHASE_OUTPUT = 4,
    OCTAVO_PHASE_GATE_UP = 5,
    OCTAVO_PHASE_DOWN = 6,
    OCTAVO_PHASE_LOGITS = 7,
    OCTAVO_PHASE_SAMPLING = 8,
    OCTAVO_PHASE_WAITING = 9, // for the other threads
    OCTAVO_NUM_PHASES = 10,
} octavo_phase;

typedef struct octavo_layer {
    const float *input_norm; // [hidden_size]
    const float *mlp_norm;   // [hidden_size]
    octavo_matrix query;     // [num_heads * head_size][hidden_size], halves of a rotary pair half a head apart
    octavo_matrix key;       // [num_kv_heads * head_size][hidden_size], likewise
    octavo_matrix value;     // [num_kv_heads * head_size][hidden_size]
    octavo_matrix output;    // [hidden_size][num_heads * head_size]
    octavo_matrix gate;      // [intermediate_size][hidden_size]
    octavo_matrix up;        // [intermediate_size][hidden_size]
    octavo_matrix down;      // [hidden_size][intermediate_size]
} octavo_layer;

typedef struct octavo_model_params {
    const octavo_layer *layers; // [num_layers]
    octavo_matrix embedding;    // [vocab_size][hidden_size]
    octavo_matrix lm_head;      // [vocab_size][hidden_size]
    const float *final_norm;    // [hidden_size]
    const float *cos;           // [num_positions][head_size / 2]
    const float *sin;           // [num_positions][head_size / 2]
    int64_t num_positions;
    int32_t num_layers;
    int32_t num_heads; // a multiple of num_kv_heads
    int32_t num_kv_heads;
    int32_t head_size;   // a multiple of 16
    int32_t precision;   // octavo_precision of the products
    int32_t num_threads; // of a step
    float rms_norm_eps;
} octavo_model_params;

typedef struct octavo_model octavo_model;

typedef struct octavo_step_params {
    octavo_cache cache;
    const int32_t *token_ids;    // [num_tokens]
    const int32_t *positions;    // [num_tokens]
    const int64_t *slot_mapping; // [num_tokens], all different
    const int32_t *query_starts; // [num_seqs + 1], from 0 to num_tokens, never falling
    const int32_t *context_lens; // [num_seqs], tokens with the new ones
    const int32_t *block_tables; // [num_seqs][max_blocks]
    const int32_t *logit_rows;   // [num_logit_rows], tokens whose logits are asked
    float *logits;               // [num_logit_rows][vocab_size]; null: only tokens are asked
    int64_t *phase_ns;           // [OCTAVO_NUM_PHASES]
    // From the rows of logits, in their order; its `logits` and `dtype` are not looked at.
    octavo_sample_params sampling;
    int64_t num_tokens;
    int32_t num_seqs;
    int32_t max_blocks; // row length of block_tables
    int32_t num_logit_rows;
} octavo_step_params;

// Copies the structs; the memory they point to must stay.
OCTAVO_API int32_t octavo_cpu_create_model(octavo_model_params params, octavo_model **model);
OCTAVO_API void octavo_cpu_destroy_model(octavo_model *model);

// Writes the KV of every token, and the tokens and logits that were asked.
OCTAVO_API int32_t octavo_cpu_step(octavo_model *model, octavo_step_params params);

#ifdef __cplusplus
}
#endif
#endif
