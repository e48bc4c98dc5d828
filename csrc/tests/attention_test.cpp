// Attention of every instruction set that can run here, or be emulated, against sums in double, over memory of the
// exact size: with -DOCTAVO_SANITIZE=ON any read outside of it is found. Prints the name of each set that passed.
#include "attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attention_kernel.h"
#include "require.h"
#include "transfers.h"

namespace octavo {

extern const AttentionKernels attention_kernels_avx512_emulated;

namespace {
const AttentionKernels *chosen = &attention_kernels_portable;
}

const AttentionKernels &attention_kernels() { return *chosen; }

} // namespace octavo

namespace {

using octavo::AttentionKernels;

struct Case {
    int32_t head_size, group, block_size, context_len, num_new, dtype;
};

// What is left of `x` in memory of the type; truncated: any value will do for input.
float kept(float x, int32_t dtype) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (dtype == OCTAVO_BFLOAT16) bits &= 0xffff0000;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// One sequence over one KV head whose blocks lie backwards in the pool; slots past the context hold NaN.
class Problem {
public:
    explicit Problem(const Case &c)
        : case_(c), num_blocks_((c.context_len + c.block_size - 1) / c.block_size), keys_(normal(c.context_len, 1)),
          values_(normal(c.context_len, 2)), query_(normal(c.num_new * c.group, 3)),
          pool_(2LL * num_blocks_ * c.block_size * c.head_size * (c.dtype == OCTAVO_FLOAT32 ? 4 : 2), '\xff') {
        for (int32_t i = num_blocks_ - 1; i >= 0; --i) table_.push_back(i);
        for (int32_t position = 0; position < c.context_len; ++position)
            octavo::store_kv(cache(), 0, table_[position / c.block_size] * c.block_size + position % c.block_size,
                             &keys_[position * c.head_size], &values_[position * c.head_size]);
    }

    // The new tokens from `first` to before `end`, in one call.
    std::vector<float> attend(int32_t first, int32_t end) {
        const int32_t starts[] = {0, end - first}, context_len = case_.context_len - (case_.num_new - end);
        const int64_t row = int64_t{case_.group} * case_.head_size;
        octavo_paged_attention_params params = {};
        params.cache = cache();
        params.query_starts = starts;
        params.context_lens = &context_len;
        params.block_tables = table_.data();
        params.num_seqs = 1;
        params.max_blocks = num_blocks_;
        params.num_heads = case_.group;
        params.scale = kScale;
        octavo::AttentionPlan plan(params, 1);
        std::vector<float> output((end - first) * row), scratch(plan.scratch_bytes() / sizeof(float));
        const octavo::AttentionRows rows{query_.data() + first * row, output.data(), row, OCTAVO_FLOAT32};
        octavo::attend(plan, 0, rows, 0, scratch.data());
        octavo::merge(plan, 0, rows, scratch.data());
        return output;
    }

    double largest_error() {
        const std::vector<float> output = attend(0, case_.num_new);
        double error = 0;
        for (int32_t row = 0; row < case_.num_new * case_.group; ++row) {
            const std::vector<double> expected = dense(row);
            for (int32_t d = 0; d < case_.head_size; ++d) {
                const double difference = std::fabs(output[row * case_.head_size + d] - expected[d]);
                if (!(difference <= error)) error = std::isnan(difference) ? INFINITY : difference;
            }
        }
        return error;
    }

    bool is_the_same_token_by_token() {
        std::vector<float> together = attend(0, case_.num_new), alone;
        for (int32_t token = 0; token < case_.num_new; ++token)
            for (const float x : attend(token, token + 1)) alone.push_back(x);
        return std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)) == 0;
    }

private:
    static constexpr float kScale = 0.2f;

    std::vector<float> normal(int32_t num_rows, int seed) const {
        std::mt19937 random(seed);
        std::normal_distribution<float> distribution;
        std::vector<float> rows(int64_t{num_rows} * case_.head_size);
        for (float &x : rows) x = kept(distribution(random), case_.dtype);
        return rows;
    }

    octavo_cache cache() { return {pool_.data(), num_blocks_, 1, 1, case_.block_size, case_.head_size, case_.dtype}; }

    std::vector<double> dense(int32_t row) const {
        const int32_t size = case_.head_size, visible = case_.context_len - case_.num_new + row / case_.group + 1;
        std::vector<double> sums(size);
        double total = 0;
        for (int32_t position = 0; position < visible; ++position) {
            double score = 0;
            for (int32_t d = 0; d < size; ++d) score += double{query_[row * size + d]} * keys_[position * size + d];
            const double weight = std::exp(score * kScale);
            total += weight;
            for (int32_t d = 0; d < size; ++d) sums[d] += weight * values_[position * size + d];
        }
        for (double &sum : sums) sum /= total;
        return sums;
    }

    Case case_;
    int32_t num_blocks_;
    std::vector<int32_t> table_;
    std::vector<float> keys_, values_, query_; // [context_len | num_new * group][head_size]
    std::vector<char> pool_;
};

void attends_like_dense_attention(const AttentionKernels &kernels) {
    octavo::chosen = &kernels;
    for (const int32_t dtype : {OCTAVO_FLOAT32, OCTAVO_BFLOAT16})
        for (const int32_t head_size : {8, 64, 72})
            for (const int32_t group : {1, 2, 3, 5})
                for (const int32_t block_size : {7, 16, 48})
                    for (const int32_t context_len : {45, 96, 531}) {
                        Problem problem({head_size, group, block_size, context_len, 45, dtype});
                        REQUIRE(problem.largest_error() < 5e-6);
                    }
}

void gives_the_same_bits_token_by_token(const AttentionKernels &kernels) {
    octavo::chosen = &kernels;
    for (const int32_t dtype : {OCTAVO_FLOAT32, OCTAVO_BFLOAT16})
        for (const int32_t group : {1, 3, 4, 7}) {
            Problem problem({72, group, 16, 531, 45, dtype});
            REQUIRE(problem.is_the_same_token_by_token());
        }
}

void test(const AttentionKernels &kernels) {
    attends_like_dense_attention(kernels);
    gives_the_same_bits_token_by_token(kernels);
    std::printf("%s: ok\n", kernels.isa);
}

} // namespace

int main() {
    test(octavo::attention_kernels_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        test(octavo::attention_kernels_avx2);
        test(octavo::attention_kernels_avx512_emulated);
    }
#endif
}
