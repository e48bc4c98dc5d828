// How work is divided: rows of norms and rotations by tokens, products by panels of outputs, always evenly and by
// number alone. No sum is ever cut, so a row's bits depend on neither the batch nor the number of threads.
//
// Where the batch has few rows, every thread prepares all of them for itself: that is faster than a barrier.
#include "step.h"

#include <omp.h>

#include <algorithm>
#include <chrono>

#include "attention.h"
#include "sampling.h"
#include "step_state.h"
#include "team.h"
#include "transfers.h"

namespace octavo {
namespace {

struct Target {
    const octavo_matrix &weights;
    float *y;
    int64_t stride;
};

class Thread {
public:
    Thread(Step &step, int index, int num_threads)
        : step_(step), model_(step.model), params_(step.params), rows_(step.rows), index_(index),
          num_threads_(num_threads), scratch_(step.scratch_of(index)) {}

    void run() {
        embed();
        for (int32_t layer = 0; layer < model_.shape.num_layers; ++layer) {
            attention_block(layer);
            mlp_block(model_.layers[layer]);
        }
        logits();
        clock_.enter(OCTAVO_PHASE_NORMS);
    }

    const PhaseClock &clock() const { return clock_; }

private:
    void embed() {
        const Range tokens = share(params_.num_tokens, index_, num_threads_);
        for (int64_t token = tokens.first; token < tokens.last; ++token)
            unpack_row(model_.shape.embedding, params_.token_ids[token], hidden(token));
        wait();
    }

    void attention_block(int32_t index) {
        const octavo_layer &layer = model_.layers[index];
        const char *prepared = prepare_hidden(layer.input_norm);
        clock_.enter(OCTAVO_PHASE_QKV);
        const int64_t stride = step_.heads_stride();
        float *keys = rows_.heads + model_.query_size();
        multiply(prepared, params_.num_tokens,
                 {{layer.query, rows_.heads, stride},
                  {layer.key, keys, stride},
                  {layer.value, keys + model_.kv_size(), stride}});
        wait();
        clock_.enter(OCTAVO_PHASE_ROTARY_AND_KV);
        rotate_and_store(index);
        wait();
        clock_.enter(OCTAVO_PHASE_ATTENTION);
        attend_to(index);
        wait();
        clock_.enter(OCTAVO_PHASE_OUTPUT);
        add_product(layer.output, prepare(rows_.attended, model_.query_size()));
        wait();
    }

    void mlp_block(const octavo_layer &layer) {
        const char *prepared = prepare_hidden(layer.mlp_norm);
        clock_.enter(OCTAVO_PHASE_GATE_UP);
        gate_up(layer, prepared);
        wait();
        clock_.enter(OCTAVO_PHASE_DOWN);
        add_product(layer.down, prepare(rows_.gated, model_.intermediate_size()));
        wait();
    }

    void rotate_and_store(int32_t layer) {
        const int32_t head_size = model_.shape.head_size;
        const Range tokens = share(params_.num_tokens, index_, num_threads_);
        for (int64_t token = tokens.first; token < tokens.last; ++token) {
            float *query = rows_.heads + token * step_.heads_stride();
            float *key = query + model_.query_size();
            const int64_t angles = int64_t{params_.positions[token]} * (head_size / 2);
            model_.rows.rotate(query, model_.shape.num_heads + model_.shape.num_kv_heads, head_size,
                               model_.shape.cos + angles, model_.shape.sin + angles);
            store_kv(params_.cache, layer, params_.slot_mapping[token], key, key + model_.kv_size());
        }
    }

    void attend_to(int32_t layer) {
        const AttentionRows rows{rows_.heads, rows_.attended, step_.heads_stride(), OCTAVO_FLOAT32};
        attend(step_.plan, layer, rows, index_, step_.attention_scratch());
        if (!step_.plan.has_merges()) return;
        wait();
        merge(step_.plan, layer, rows, step_.attention_scratch());
    }

    // silu(gate) * up of a few panels at a time, while they lie in the cache.
    void gate_up(const octavo_layer &layer, const char *prepared) {
        const Range mine = share(num_panels(layer.gate.num_outputs), index_, num_threads_);
        const int64_t most = std::max<int64_t>(kFusedFloats / (params_.num_tokens * kPanel), 1);
        for (int64_t first = mine.first; first < mine.last; first += most) {
            const int64_t last = std::min(first + most, mine.last);
            const int64_t output = first * kPanel;
            const int64_t width = std::min(last * kPanel, layer.gate.num_outputs) - output;
            multiply_panels(layer.gate, prepared, params_.num_tokens, {first, last}, scratch_.gate, width);
            multiply_panels(layer.up, prepared, params_.num_tokens, {first, last}, scratch_.up, width);
            for (int64_t token = 0; token < params_.num_tokens; ++token)
                model_.rows.silu_mul(scratch_.gate + token * width, scratch_.up + token * width, width,
                                     rows_.gated + token * model_.intermediate_size() + output);
        }
    }

    // Logits of so many rows as lie in the caches, then their tokens.
    void logits() {
        int64_t sample = 0;
        for (int64_t first = 0; first < params_.num_logit_rows; first += kLogitRows) {
            const Range rows{first, std::min<int64_t>(first + kLogitRows, params_.num_logit_rows)};
            float *logits =
                params_.logits == nullptr ? rows_.logits : params_.logits + rows.first * model_.vocab_size();
            multiply_logits(rows, logits);
            sample = draw(rows, logits, sample);
        }
    }

    void multiply_logits(Range rows, float *logits) {
        clock_.enter(OCTAVO_PHASE_NORMS);
        const int64_t count = rows.last - rows.first;
        const char *prepared = prepare_rows(model_.hidden_size(), count, [&](int64_t row) {
            return normed(hidden(params_.logit_rows[rows.first + row]), model_.shape.final_norm);
        });
        clock_.enter(OCTAVO_PHASE_LOGITS);
        multiply(prepared, count, {{model_.shape.lm_head, logits, model_.vocab_size()}});
        wait();
    }

    // Draws what is asked from `rows`, whose logits are given, beginning with the sample `first`; returns the one
    // after.
    int64_t draw(Range rows, const float *logits, int64_t first) {
        clock_.enter(OCTAVO_PHASE_SAMPLING);
        const octavo_sample_params &sampling = params_.sampling;
        const auto row_of = [&](int64_t sample) {
            return sampling.logits_rows == nullptr ? sample : sampling.logits_rows[sample];
        };
        int64_t last = first;
        while (last < sampling.num_rows && row_of(last) < rows.last) ++last;
        const Range mine = share(last - first, index_, num_threads_);
        for (int64_t sample = first + mine.first; sample < first + mine.last; ++sample)
            sample_row(sampling, sample, logits + (row_of(sample) - rows.first) * model_.vocab_size(),
                       scratch_.sampling);
        wait();
        return last;
    }

    // hidden += x W^T; each thread adds to the columns of its panels.
    void add_product(const octavo_matrix &weights, const char *prepared) {
        const Range mine = share(num_panels(weights.num_outputs), index_, num_threads_);
        const int64_t first = mine.first * kPanel;
        const int64_t width = std::min(mine.last * kPanel, weights.num_outputs) - first;
        if (width <= 0) return;
        multiply_panels(weights, prepared, params_.num_tokens, mine, scratch_.residual, width);
        for (int64_t token = 0; token < params_.num_tokens; ++token)
            model_.rows.add(scratch_.residual + token * width, width, hidden(token) + first);
    }

    // The panels of several products of the same rows are shared out as if they were one's.
    void multiply(const char *prepared, int64_t num_rows, std::initializer_list<Target> targets) {
        int64_t total = 0;
        for (const Target &target : targets) total += num_panels(target.weights.num_outputs);
        const Range mine = share(total, index_, num_threads_);
        int64_t start = 0;
        for (const Target &target : targets) {
            const int64_t count = num_panels(target.weights.num_outputs);
            const Range panels{std::max(mine.first - start, int64_t{0}), std::min(mine.last - start, count)};
            if (panels.first < panels.last)
                multiply_panels(target.weights, prepared, num_rows, panels, target.y + panels.first * kPanel,
                                target.stride);
            start += count;
        }
    }

    // `y` points at the first output of the first panel.
    void multiply_panels(const octavo_matrix &weights, const char *prepared, int64_t num_rows, Range panels, float *y,
                         int64_t stride) {
        model_.products.multiply(weights, prepared, num_rows, panels.first, panels.last, y - panels.first * kPanel,
                                 stride, scratch_.products);
    }

    const char *prepare_hidden(const float *norm) {
        clock_.enter(OCTAVO_PHASE_NORMS);
        return prepare_rows(model_.hidden_size(), params_.num_tokens,
                            [&](int64_t token) { return normed(hidden(token), norm); });
    }

    const char *prepare(const float *rows, int64_t size) {
        return prepare_rows(size, params_.num_tokens, [&](int64_t token) { return rows + token * size; });
    }

    // The rows as products take them: all of the batch's, once whoever prepares them is done.
    template <class RowAt> const char *prepare_rows(int64_t size, int64_t num_rows, RowAt row_at) {
        const bool by_all = num_rows <= kRowsPreparedByAll;
        const Range mine = by_all ? Range{0, num_rows} : share(num_rows, index_, num_threads_);
        char *prepared = by_all ? scratch_.prepared : rows_.prepared;
        const int64_t row_bytes = model_.products.activation_bytes(size);
        for (int64_t row = mine.first; row < mine.last; ++row)
            model_.products.prepare(row_at(row), size, prepared + row * row_bytes);
        if (!by_all) wait();
        return prepared;
    }

    const float *normed(const float *row, const float *weight) {
        model_.rows.rms_norm(row, weight, model_.hidden_size(), model_.shape.rms_norm_eps, scratch_.row);
        return scratch_.row;
    }

    float *hidden(int64_t token) { return rows_.hidden + token * model_.hidden_size(); }

    void wait() {
        const octavo_phase phase = clock_.enter(OCTAVO_PHASE_WAITING);
        step_.barrier.wait(num_threads_);
        clock_.enter(phase);
    }

    Step &step_;
    const Model &model_;
    const octavo_step_params &params_;
    const Rows &rows_;
    const int index_;
    const int num_threads_;
    const Scratch scratch_;
    PhaseClock clock_;
};

} // namespace

void run_step(const Model &model, const octavo_step_params &params, StepMemory &memory) {
    const auto started = std::chrono::steady_clock::now();
    Step step(model, params, memory);
#pragma omp parallel num_threads(model.shape.num_threads)
    {
        Thread thread(step, omp_get_thread_num(), omp_get_num_threads());
        thread.run();
        if (omp_get_thread_num() == 0) {
            const auto spent = std::chrono::steady_clock::now() - started;
            thread.clock().report(std::chrono::nanoseconds(spent).count(), params.phase_ns);
        }
    }
}

} // namespace octavo
