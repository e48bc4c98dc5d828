#include "token_rules.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace octavo {
namespace {

bool has_penalty(const octavo_sampling_row &row) {
    return row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
}

bool is_set(const uint8_t *mask, int64_t token_id) { return mask[token_id / 8] >> (token_id % 8) & 1; }

void exclude_by_mask(const uint8_t *mask, int64_t vocab_size, float *values) {
    for (int64_t first = 0; first < vocab_size; first += 8) {
        const uint8_t bits = mask[first / 8];
        if (bits == 0xff) continue;
        for (int64_t i = first; i < std::min(first + 8, vocab_size); ++i)
            if (!(bits >> (i - first) & 1)) values[i] = -INFINITY;
    }
}

float penalized(float logit, int64_t count, const octavo_sampling_row &row) {
    float shifted = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    shifted -= row.frequency_penalty * static_cast<float>(count);
    shifted -= row.presence_penalty * (count > 0 ? 1.0f : 0.0f);
    return std::min(shifted, FLT_MAX);
}

} // namespace

bool is_ruled(const octavo_sampling_row &row) {
    return row.mask_start < row.mask_end || row.allowed_start < row.allowed_end ||
           row.forbidden_start < row.forbidden_end || row.biased_start < row.biased_end ||
           (row.seen_start < row.seen_end && has_penalty(row));
}

void apply_rules(const octavo_sample_params &params, const octavo_sampling_row &row, const float *logits,
                 float *values) {
    const int64_t vocab_size = params.vocab_size;
    const uint8_t *mask = row.mask_start < row.mask_end ? params.masks + row.mask_start : nullptr;
    if (row.allowed_start < row.allowed_end) {
        std::fill(values, values + vocab_size, -INFINITY);
        for (int64_t i = row.allowed_start; i < row.allowed_end; ++i) {
            const int64_t token_id = params.allowed_token_ids[i];
            if (mask == nullptr || is_set(mask, token_id)) values[token_id] = logits[token_id];
        }
    } else {
        std::copy(logits, logits + vocab_size, values);
        if (mask != nullptr) exclude_by_mask(mask, vocab_size, values);
    }
    for (int64_t i = row.forbidden_start; i < row.forbidden_end; ++i) values[params.forbidden_token_ids[i]] = -INFINITY;
    for (int64_t i = row.biased_start; i < row.biased_end; ++i) values[params.biased_token_ids[i]] += params.biases[i];
    if (!has_penalty(row)) return;
    for (int64_t i = row.seen_start; i < row.seen_end; ++i) {
        float &value = values[params.seen_token_ids[i]];
        value = penalized(value, params.output_counts[i], row);
    }
}

} // namespace octavo
