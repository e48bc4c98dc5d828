// A decoder of the Llama family over packed weights, as steps see it.
#pragma once

#include <cstdint>
#include <vector>

#include "octavo_step.h"
#include "product.h"
#include "row_kernel.h"

namespace octavo {

struct Model {
    // Copies `params`, which must have been checked.
    explicit Model(const octavo_model_params &params);

    int64_t vocab_size() const { return shape.lm_head.num_outputs; }
    int64_t hidden_size() const { return shape.embedding.num_inputs; }
    int64_t intermediate_size() const { return layers.front().gate.num_outputs; }
    int64_t query_size() const { return int64_t{shape.num_heads} * shape.head_size; }
    int64_t kv_size() const { return int64_t{shape.num_kv_heads} * shape.head_size; }
    int64_t widest_input() const;
    float attention_scale() const;

    std::vector<octavo_layer> layers;
    octavo_model_params shape; // its `layers` is null
    const ProductKernels &products;
    const RowKernels &rows;
};

// Attention of a step; neither query, output nor layer are set.
octavo_paged_attention_params attention_of(const octavo_step_params &step, const Model &model);

// These throw ArgumentError.
void check(const octavo_model_params &params);
void check(const octavo_step_params &params, const Model &model);

} // namespace octavo
