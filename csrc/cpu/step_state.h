// What the threads of a step share, and what each has to itself: rows in memory that all steps of a model reuse.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_plan.h"
#include "model.h"
#include "packed_weights.h"
#include "sampling.h"
#include "step.h"
#include "team.h"

namespace octavo {

constexpr int64_t kRowsPreparedByAll = 4; // where there are no more, by each thread for itself
constexpr int64_t kFusedFloats = 8192; // gate and up of so many outputs stay in the L1 cache until they are multiplied
constexpr int64_t kLogitRows = 64;     // that are sampled before the next ones are computed

// Rows of a step, for the whole team.
struct Rows {
    float *hidden;   // [num_tokens][hidden_size], the residual stream
    float *heads;    // [num_tokens][query_size + 2 kv_size]: queries, keys, values
    float *attended; // [num_tokens][query_size]
    float *gated;    // [num_tokens][intermediate_size]
    char *prepared;  // [num_tokens or kLogitRows] of the widest input
    float *logits;   // [kLogitRows][vocab_size], where the caller has no room for them
};

// What a thread has to itself.
struct Scratch {
    float *row;      // [widest input]
    char *prepared;  // [kRowsPreparedByAll] of the widest input
    float *gate;     // [rows of a piece][fused outputs]
    float *up;       // likewise
    float *residual; // [num_tokens][outputs of a thread's panels]; room for all, should the team be of one
    char *products;  // of ProductKernels
    char *sampling;  // of sample_row
};

// One step: model, batch, memory and what the team meets at.
class Step {
public:
    Step(const Model &model, const octavo_step_params &params, StepMemory &memory)
        : model(model), params(params), plan(attention_of(params, model), model.shape.num_threads), memory_(memory) {
        Carver counted(nullptr);
        carve_rows(counted);
        memory.rows.reserve(counted.taken());
        Carver carver(memory.rows.get());
        rows = carve_rows(carver);
        Carver counted_scratch(nullptr);
        carve_scratch(counted_scratch);
        scratch_bytes_ = counted_scratch.taken();
        memory.threads.reserve(scratch_bytes_ * model.shape.num_threads);
        memory.attention.reserve(plan.scratch_bytes());
    }

    Scratch scratch_of(int thread) const {
        Carver carver(memory_.threads.get() + thread * scratch_bytes_);
        return carve_scratch(carver);
    }

    void *attention_scratch() const { return memory_.attention.get(); }

    int64_t heads_stride() const { return model.query_size() + 2 * model.kv_size(); }

    const Model &model;
    const octavo_step_params &params;
    AttentionPlan plan;
    Barrier barrier;
    Rows rows{};

private:
    int64_t widest_prepared() const { return model.products.activation_bytes(model.widest_input()); }

    Rows carve_rows(Carver &carver) const {
        const int64_t num_tokens = params.num_tokens;
        Rows part{};
        part.hidden = carver.take<float>(num_tokens * model.hidden_size());
        part.heads = carver.take<float>(num_tokens * heads_stride());
        part.attended = carver.take<float>(num_tokens * model.query_size());
        part.gated = carver.take<float>(num_tokens * model.intermediate_size());
        const int64_t logit_rows = std::min<int64_t>(params.num_logit_rows, kLogitRows);
        part.prepared = carver.take<char>(std::max(num_tokens, logit_rows) * widest_prepared());
        if (params.logits == nullptr) part.logits = carver.take<float>(logit_rows * model.vocab_size());
        return part;
    }

    Scratch carve_scratch(Carver &carver) const {
        Scratch part{};
        part.row = carver.take<float>(model.widest_input());
        part.prepared = carver.take<char>(kRowsPreparedByAll * widest_prepared());
        part.gate = carver.take<float>(std::max(kFusedFloats, params.num_tokens * kPanel));
        part.up = carver.take<float>(std::max(kFusedFloats, params.num_tokens * kPanel));
        part.residual = carver.take<float>(params.num_tokens * num_panels(model.hidden_size()) * kPanel);
        part.products = carver.take<char>(model.products.scratch_bytes(model.widest_input()));
        if (params.sampling.num_rows > 0) part.sampling = carver.take<char>(sample_scratch_bytes(model.vocab_size()));
        return part;
    }

    StepMemory &memory_;
    int64_t scratch_bytes_ = 0;
};

} // namespace octavo
