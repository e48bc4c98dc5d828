// The passes of the sampler on every instruction set against float64, AVX-512 in emulation; and one row's token.
#include <cmath>
#include <random>
#include <vector>

#include "aligned_memory.h"
#include "require.h"
#include "sampling.h"
#include "sampling_kernel.h"

namespace octavo {

extern const SamplingKernels sampling_kernels_avx512_emulated;

namespace {
const SamplingKernels *chosen = &sampling_kernels_portable;
}

const SamplingKernels &sampling_kernels() { return *chosen; }

} // namespace octavo

namespace {

using octavo::kBlockTokens;
using octavo::num_token_blocks;

std::vector<float> random_logits(int64_t size) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::normal_distribution<float> distribution(0, 3);
    std::vector<float> logits(size);
    for (float &logit : logits) logit = distribution(random);
    logits[size / 2] = -INFINITY;
    logits[size / 3] = 9.5f; // the largest, unless one is larger still
    return logits;
}

void near(double actual, double expected) { REQUIRE(std::fabs(actual - expected) <= 1e-6 * (1 + std::fabs(expected))); }

void passes_are_those_of_float64(const octavo::SamplingKernels &kernels, int64_t size) {
    const std::vector<float> logits = random_logits(size);
    const int64_t num_blocks = num_token_blocks(size);
    std::vector<float> largest_of(num_blocks), weights(num_blocks * kBlockTokens, NAN);
    std::vector<double> sums(num_blocks);
    const float largest = kernels.find_largest(logits.data(), size, largest_of.data());
    double total = 0, weighed = 0, kept = 0;
    float expected_largest = -INFINITY;
    for (const float logit : logits) expected_largest = std::fmax(expected_largest, logit);
    REQUIRE(largest == expected_largest);
    for (const float logit : logits) total += std::exp(double{logit} - largest);
    near(kernels.sum_of_exponentials(logits.data(), size, largest), total);

    const double told = kernels.weigh(logits.data(), size, largest, 0.7f, -6.0f, weights.data(), sums.data());
    for (int64_t i = 0; i < num_blocks * kBlockTokens; ++i) {
        const float scaled = i < size ? (logits[i] - largest) / 0.7f : -INFINITY;
        const double weight = scaled < -6.0f ? 0 : std::exp(double{scaled});
        near(weights[i], weight);
        weighed += weight;
        kept += weights[i] >= 0.1f ? weights[i] : 0;
    }
    near(told, weighed);
    near(kernels.sum_from(0.1f, weights.data(), num_blocks, sums.data()), kept);
    double of_blocks = 0;
    for (const double sum : sums) of_blocks += sum;
    near(of_blocks, kept);
}

int64_t token_of(const std::vector<float> &logits, uint32_t position, double top_p, int32_t top_k) {
    octavo_sampling_row row{};
    row.top_p = top_p;
    row.top_k = top_k;
    row.position = position;
    row.temperature = 1;
    row.log_min_p = -INFINITY;
    row.repetition_penalty = 1;
    int64_t token_id = -7;
    octavo_sample_params params{};
    params.rows = &row;
    params.token_ids = &token_id;
    params.vocab_size = static_cast<int32_t>(logits.size());
    const octavo::AlignedMemory scratch(octavo::sample_scratch_bytes(params.vocab_size));
    octavo::sample_row(params, 0, logits.data(), scratch.get());
    return token_id;
}

void tokens_are_those_of_the_portable_passes(const octavo::SamplingKernels &kernels, int64_t size) {
    const std::vector<float> logits = random_logits(size);
    for (uint32_t position = 0; position < 20; ++position)
        for (const double top_p : {1.0, 0.8})
            for (const int32_t top_k : {0, 7}) {
                octavo::chosen = &octavo::sampling_kernels_portable;
                const int64_t expected = token_of(logits, position, top_p, top_k);
                octavo::chosen = &kernels;
                REQUIRE(token_of(logits, position, top_p, top_k) == expected);
            }
}

void samples_alike(const octavo::SamplingKernels &kernels) {
    for (const int64_t size : {3, 16, 63, 64, 65, 1000, 4096}) {
        passes_are_those_of_float64(kernels, size);
        tokens_are_those_of_the_portable_passes(kernels, size);
    }
}

} // namespace

int main() {
    samples_alike(octavo::sampling_kernels_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        samples_alike(octavo::sampling_kernels_avx2);
        samples_alike(octavo::sampling_kernels_avx512_emulated);
    }
#endif
}
