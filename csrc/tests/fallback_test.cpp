// The library as it is installed, through its C interface: prints the instruction set that it chose, and holds what it
// writes and attends to against sums in double. test_fallbacks.py runs it on emulated processors.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "octavo.h"
#include "require.h"

namespace {

constexpr int32_t kHeads = 6, kKVHeads = 2, kHeadSize = 64, kNumNew = 3;
constexpr float kScale = 0.125f;

using Elements = std::vector<float>;

Elements normal(int64_t size, int seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution;
    Elements elements(size);
    for (float &x : elements) x = distribution(random);
    return elements;
}

// The last tokens of one context, whose blocks lie backwards in the pool.
struct Problem {
    Problem(int32_t context, int32_t block)
        : context_len(context), block_size(block), num_blocks((context + block - 1) / block),
          keys(normal(int64_t{context} * kKVHeads * kHeadSize, 1)),
          values(normal(int64_t{context} * kKVHeads * kHeadSize, 2)), query(normal(kNumNew * kHeads * kHeadSize, 3)),
          output(query.size(), NAN), pool(int64_t{2} * num_blocks * block * kKVHeads * kHeadSize, NAN) {
        for (int32_t i = num_blocks - 1; i >= 0; --i) table.push_back(i);
        for (int64_t i = 0; i < context; ++i) slots.push_back(int64_t{table[i / block]} * block + i % block);
    }

    void run() {
        const octavo_cache cache = {pool.data(), num_blocks, 1, kKVHeads, block_size, kHeadSize, OCTAVO_FLOAT32};
        const int64_t row = kKVHeads * kHeadSize;
        REQUIRE(octavo_cpu_write_kv({cache, keys.data(), values.data(), slots.data(), context_len, row, row, 0}) ==
                OCTAVO_OK);
        const int32_t starts[] = {0, kNumNew};
        REQUIRE(octavo_cpu_paged_attention({cache, query.data(), output.data(), starts, &context_len, table.data(),
                                            kNumNew, kHeads * kHeadSize, 1, num_blocks, kHeads, 0, kScale}) ==
                OCTAVO_OK);
    }

    double error_of(int32_t token, int32_t head) const {
        const float *row = &query[(token * kHeads + head) * kHeadSize];
        std::vector<double> sums(kHeadSize);
        double total = 0, error = 0;
        for (int32_t position = 0; position <= context_len - kNumNew + token; ++position) {
            const int64_t place = (int64_t{position} * kKVHeads + head / (kHeads / kKVHeads)) * kHeadSize;
            double score = 0;
            for (int32_t d = 0; d < kHeadSize; ++d) score += double{row[d]} * keys[place + d];
            const double weight = std::exp(score * kScale);
            total += weight;
            for (int32_t d = 0; d < kHeadSize; ++d) sums[d] += weight * values[place + d];
        }
        for (int32_t d = 0; d < kHeadSize; ++d) {
            const double difference = std::fabs(output[(token * kHeads + head) * kHeadSize + d] - sums[d] / total);
            if (!(difference <= error)) error = std::isnan(difference) ? INFINITY : difference;
        }
        return error;
    }

    int32_t context_len, block_size, num_blocks;
    Elements keys, values; // [context_len][kKVHeads][kHeadSize]
    Elements query, output, pool;
    std::vector<int32_t> table;
    std::vector<int64_t> slots;
};

} // namespace

int main() {
    for (const int32_t context_len : {3, 40, 300})
        for (const int32_t block_size : {1, 16, 64}) {
            Problem problem(context_len, block_size);
            problem.run();
            for (int32_t token = 0; token < kNumNew; ++token)
                for (int32_t head = 0; head < kHeads; ++head) REQUIRE(problem.error_of(token, head) < 5e-6);
        }
    std::printf("%s\n", octavo_cpu_isa());
}
