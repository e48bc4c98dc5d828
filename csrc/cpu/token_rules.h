// What forbids tokens or shifts their logits before one is drawn (services/gpuworker/token_rules.py).
#pragma once

#include "octavo.h"

namespace octavo {

// Whether anything does.
bool is_ruled(const octavo_sampling_row &row);

// values[i] = the logit after masks, allowed and forbidden tokens, biases and penalties; -infinity is "never".
void apply_rules(const octavo_sample_params &params, const octavo_sampling_row &row, const float *logits,
                 float *values);

} // namespace octavo
