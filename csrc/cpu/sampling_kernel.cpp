// The passes over a row of logits.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table. Holds no inline std:: code (attention_kernel.h).
#include "sampling_kernel.h"

#include "exponential.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr int kLanes = 16;
constexpr int kPacks = kBlockTokens / kLanes;
constexpr float kInfinity = __builtin_inff();

struct Block {
    Floats16 packs[kPacks];
};

inline Block load_block(const float *from) {
    Block block;
#pragma GCC unroll 4
    for (int p = 0; p < kPacks; ++p) block.packs[p] = load(from + p * kLanes);
    return block;
}

// The last tokens, and -infinity for those that are missing.
inline Block load_part(const float *from, int64_t count) {
    float tokens[kBlockTokens];
    for (int i = 0; i < kBlockTokens; ++i) tokens[i] = i < count ? from[i] : -kInfinity;
    return load_block(tokens);
}

// Visits block after block.
template <class Visit> inline void each_block(const float *logits, int64_t size, Visit visit) {
    const int64_t whole = size / kBlockTokens;
    for (int64_t b = 0; b < whole; ++b) visit(b, load_block(logits + b * kBlockTokens));
    if (whole * kBlockTokens < size)
        visit(whole, load_part(logits + whole * kBlockTokens, size - whole * kBlockTokens));
}

inline float sum_of(const Block &block) {
    return sum(add(add(block.packs[0], block.packs[1]), add(block.packs[2], block.packs[3])));
}

static_assert(kPacks == 4, "a block is reduced as two pairs of packs");

float find_largest(const float *logits, int64_t size, float *block_largest) {
    float of_all = -kInfinity;
    each_block(logits, size, [&](int64_t b, const Block &block) {
        const Floats16 first = maximum(block.packs[0], block.packs[1]);
        const float of_block = largest(maximum(first, maximum(block.packs[2], block.packs[3])));
        block_largest[b] = of_block;
        of_all = of_block > of_all ? of_block : of_all;
    });
    return of_all;
}

double sum_of_exponentials(const float *logits, int64_t size, float largest) {
    double total = 0;
    each_block(logits, size, [&](int64_t, Block block) {
#pragma GCC unroll 4
        for (Floats16 &pack : block.packs) pack = exponential(subtract(pack, broadcast(largest)));
        total += static_cast<double>(sum_of(block));
    });
    return total;
}

double weigh(const float *logits, int64_t size, float largest, float temperature, float threshold, float *weights,
             double *block_sums) {
    double total = 0;
    each_block(logits, size, [&](int64_t b, Block block) {
#pragma GCC unroll 4
        for (int p = 0; p < kPacks; ++p) {
            const Floats16 scaled = divide(subtract(block.packs[p], broadcast(largest)), broadcast(temperature));
            block.packs[p] = zero_below(exponential(scaled), scaled, broadcast(threshold));
            store(weights + b * kBlockTokens + p * kLanes, block.packs[p]);
        }
        total += block_sums[b] = static_cast<double>(sum_of(block));
    });
    return total;
}

double sum_from(float threshold, const float *weights, int64_t num_blocks, double *block_sums) {
    double total = 0;
    each_block(weights, num_blocks * kBlockTokens, [&](int64_t b, Block block) {
#pragma GCC unroll 4
        for (Floats16 &pack : block.packs) pack = zero_below(pack, pack, broadcast(threshold));
        total += block_sums[b] = static_cast<double>(sum_of(block));
    });
    return total;
}

} // namespace

extern const SamplingKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const SamplingKernels OCTAVO_KERNELS = {find_largest, sum_of_exponentials, weigh, sum_from};

} // namespace octavo
