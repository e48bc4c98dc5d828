// Finds what is among the largest of a row without sorting it.
#pragma once

#include <cstdint>

namespace octavo {

// A row of values with the largest of each block of kBlockTokens.
struct BlockedRow {
    const float *values; // [size], no NaN
    const float *block_largest;
    int64_t size;
};

// Memory for a selection from a row of `size` values.
struct SelectionScratch {
    float *candidates; // [size rounded up to whole blocks]
    double *buckets;   // [kNumDigits]
};

constexpr int kNumDigits = 2048;

// The `count`-th largest value, 1 <= count <= size.
float nth_largest(const BlockedRow &row, int64_t count, const SelectionScratch &scratch);

// The smallest weight among the fewest largest that reach `target` together, or a number between it and the next
// smaller one; one is always kept. Weights lie in 0..1, some above 0. `block_sums` [num_blocks] is written over.
float last_of_nucleus(const float *weights, int64_t num_blocks, double target, double *block_sums,
                      const SelectionScratch &scratch);

// The tokens of the `count` largest values, the largest first, of equals the first. `token_ids` has room for `size`.
void find_top_tokens(const BlockedRow &row, int64_t count, const SelectionScratch &scratch, int32_t *token_ids);

} // namespace octavo
