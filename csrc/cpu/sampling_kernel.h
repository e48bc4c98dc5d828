// What an instruction set has to offer for sampling: the passes over a whole row of logits. Single-threaded.
//
// sampling_kernel.cpp is compiled once per instruction set. A pass keeps a figure for each block of tokens, so that
// what comes after need not look at all tokens. Sums run within a block, then over the blocks, always in the same
// order.
#pragma once

#include <cstdint>

namespace octavo {

constexpr int kBlockTokens = 64;

constexpr int64_t num_token_blocks(int64_t size) { return (size + kBlockTokens - 1) / kBlockTokens; }

struct SamplingKernels {
    // The largest of all and of each block. Has no meaning where there is NaN.
    float (*find_largest)(const float *logits, int64_t size, float *block_largest);

    // Sum of exp(logit - largest); NaN where there is one.
    double (*sum_of_exponentials)(const float *logits, int64_t size, float largest);

    // weights[i] = exp(s) of s = (logits[i] - largest) / temperature, 0 where s < threshold and past the last token of
    // the last block; the weights of each block together, and of all. `weights` may be `logits`.
    double (*weigh)(const float *logits, int64_t size, float largest, float temperature, float threshold,
                    float *weights, double *block_sums);

    // The weights of each block that are at least `threshold` together, and of all.
    double (*sum_from)(float threshold, const float *weights, int64_t num_blocks, double *block_sums);
};

extern const SamplingKernels sampling_kernels_portable;
#if defined(__x86_64__)
extern const SamplingKernels sampling_kernels_avx2;
extern const SamplingKernels sampling_kernels_avx512;
#endif

// Those of the selected instruction set.
const SamplingKernels &sampling_kernels();

} // namespace octavo
