#include "model.h"

#include <algorithm>
#include <cmath>

#include "arguments.h"
#include "sampling.h"

namespace octavo {
namespace {

struct Sizes {
    int64_t num_outputs, num_inputs;
};

void check_matrix(const std::string &name, const octavo_matrix &matrix, Sizes sizes, int32_t precision) {
    require_pointer((name + ".data").c_str(), matrix.data, 1);
    require_range(name + ".format", matrix.format, OCTAVO_WEIGHT_FLOAT32, OCTAVO_WEIGHT_Q6_K);
    require_multiplied(name + ".format", matrix.format, precision);
    require_range(name + ".num_outputs", matrix.num_outputs, sizes.num_outputs, sizes.num_outputs);
    require_range(name + ".num_inputs", matrix.num_inputs, sizes.num_inputs, sizes.num_inputs);
    const int block = inputs_per_block(matrix.format);
    if (sizes.num_inputs % block != 0)
        refuse(name + ".num_inputs", sizes.num_inputs, "a multiple of " + std::to_string(block));
}

void check_layer(const octavo_model_params &params, int32_t index, int64_t intermediate_size) {
    const octavo_layer &layer = params.layers[index];
    const int64_t hidden_size = params.embedding.num_inputs;
    const int64_t query_size = int64_t{params.num_heads} * params.head_size;
    const int64_t kv_size = int64_t{params.num_kv_heads} * params.head_size;
    const std::string name = at("layers", index);
    require_pointer((name + ".input_norm").c_str(), layer.input_norm, 1);
    require_pointer((name + ".mlp_norm").c_str(), layer.mlp_norm, 1);
    check_matrix(name + ".query", layer.query, {query_size, hidden_size}, params.precision);
    check_matrix(name + ".key", layer.key, {kv_size, hidden_size}, params.precision);
    check_matrix(name + ".value", layer.value, {kv_size, hidden_size}, params.precision);
    check_matrix(name + ".output", layer.output, {hidden_size, query_size}, params.precision);
    check_matrix(name + ".gate", layer.gate, {intermediate_size, hidden_size}, params.precision);
    check_matrix(name + ".up", layer.up, {intermediate_size, hidden_size}, params.precision);
    check_matrix(name + ".down", layer.down, {hidden_size, intermediate_size}, params.precision);
}

void check_column(const char *name, const int32_t *values, int64_t count, int64_t limit) {
    require_pointer(name, values, count);
    for (int64_t i = 0; i < count; ++i)
        if (values[i] < 0 || values[i] >= limit) require_range(at(name, i), values[i], 0, limit - 1);
}

void check_attention(const octavo_step_params &params, const Model &model) {
    octavo_paged_attention_params attention = attention_of(params, model);
    attention.query = attention.output = params.cache.pool; // of the step itself
    check(attention);
    require_range("num_layers", params.cache.num_layers, model.shape.num_layers, model.shape.num_layers);
    require_range("num_kv_heads", params.cache.num_kv_heads, model.shape.num_kv_heads, model.shape.num_kv_heads);
    require_range("head_size", params.cache.head_size, model.shape.head_size, model.shape.head_size);
}

void check_sampling(const octavo_step_params &params, const Model &model) {
    octavo_sample_params sampling = params.sampling;
    if (sampling.num_rows == 0) return;
    require_range("sampling.vocab_size", sampling.vocab_size, model.vocab_size(), model.vocab_size());
    require_range("sampling.num_logits", sampling.num_logits, params.num_logit_rows, params.num_logit_rows);
    sampling.logits = params.cache.pool; // of the step itself
    sampling.dtype = OCTAVO_FLOAT32;
    check(sampling);
    for (int32_t row = 1; row < sampling.num_rows && sampling.logits_rows != nullptr; ++row)
        if (sampling.logits_rows[row] < sampling.logits_rows[row - 1])
            refuse(at("logits_rows", row), sampling.logits_rows[row], "no less than the one before");
}

} // namespace

Model::Model(const octavo_model_params &params)
    : layers(params.layers, params.layers + params.num_layers), shape(params),
      products(product_kernels(params.precision)), rows(row_kernels()) {
    shape.layers = nullptr;
}

int64_t Model::widest_input() const { return std::max({hidden_size(), intermediate_size(), query_size()}); }

float Model::attention_scale() const { return static_cast<float>(1.0 / std::sqrt(double{1} * shape.head_size)); }

octavo_paged_attention_params attention_of(const octavo_step_params &step, const Model &model) {
    octavo_paged_attention_params params = {};
    params.cache = step.cache;
    params.query_starts = step.query_starts;
    params.context_lens = step.context_lens;
    params.block_tables = step.block_tables;
    params.num_tokens = step.num_tokens;
    params.num_seqs = step.num_seqs;
    params.max_blocks = step.max_blocks;
    params.num_heads = model.shape.num_heads;
    params.scale = model.attention_scale();
    return params;
}

void check(const octavo_model_params &params) {
    require_positive("num_layers", params.num_layers);
    require_pointer("layers", params.layers, params.num_layers);
    require_positive("num_positions", params.num_positions);
    require_positive("num_threads", params.num_threads);
    require_positive("num_kv_heads", params.num_kv_heads);
    if (params.num_heads < 1 || params.num_heads % params.num_kv_heads != 0)
        refuse("num_heads", params.num_heads, "a positive multiple of " + std::to_string(params.num_kv_heads));
    if (params.head_size < 16 || params.head_size % 16 != 0) refuse("head_size", params.head_size, "a multiple of 16");
    require_range("precision", params.precision, OCTAVO_PRECISION_FLOAT32, OCTAVO_PRECISION_INT8);
    require_pointer("cos", params.cos, 1);
    require_pointer("sin", params.sin, 1);
    require_pointer("final_norm", params.final_norm, 1);
    const int64_t hidden_size = params.embedding.num_inputs;
    if (hidden_size < 8 || hidden_size % 8 != 0) refuse("embedding.num_inputs", hidden_size, "a multiple of 8");
    const int64_t intermediate_size = params.layers[0].gate.num_outputs;
    if (intermediate_size < 8 || intermediate_size % 8 != 0)
        refuse("layers[0].gate.num_outputs", intermediate_size, "a multiple of 8");
    require_positive("embedding.num_outputs", params.embedding.num_outputs);
    check_matrix("embedding", params.embedding, {params.embedding.num_outputs, hidden_size}, OCTAVO_PRECISION_FLOAT32);
    check_matrix("lm_head", params.lm_head, {params.embedding.num_outputs, hidden_size}, params.precision);
    for (int32_t index = 0; index < params.num_layers; ++index) check_layer(params, index, intermediate_size);
}

void check(const octavo_step_params &params, const Model &model) {
    if (params.num_tokens < 1) refuse("num_tokens", params.num_tokens, "at least 1");
    check_attention(params, model);
    check_column("token_ids", params.token_ids, params.num_tokens, model.vocab_size());
    check_column("positions", params.positions, params.num_tokens, model.shape.num_positions);
    check_column("logit_rows", params.logit_rows, params.num_logit_rows, params.num_tokens);
    check_sampling(params, model);
    require_pointer("phase_ns", params.phase_ns, 1);
    require_pointer("slot_mapping", params.slot_mapping, params.num_tokens);
    const int64_t num_slots = params.cache.num_blocks * params.cache.block_size;
    for (int64_t i = 0; i < params.num_tokens; ++i)
        if (params.slot_mapping[i] < 0 || params.slot_mapping[i] >= num_slots)
            require_range(at("slot_mapping", i), params.slot_mapping[i], 0, num_slots - 1);
}

} // namespace octavo
