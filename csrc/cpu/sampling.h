// Tokens from logits (docs/sampling.md), as services/gpuworker/{sampling,token_rules,logprobs}.py, which are the
// reference.
#pragma once

#include <cstdint>

#include "octavo.h"

namespace octavo {

// What sample_row needs, 64-byte aligned; every thread has its own.
int64_t sample_scratch_bytes(int64_t vocab_size);

// Chooses the token of row `index` from its logits [vocab_size] and writes the row's results; params.logits is not
// read. Allocates nothing. Rows must have been checked.
void sample_row(const octavo_sample_params &params, int64_t index, const float *logits, void *scratch);

// All rows, cut among the threads. Parameters have been checked.
void sample(const octavo_sample_params &params);

// Throws ArgumentError.
void check(const octavo_sample_params &params);

} // namespace octavo
