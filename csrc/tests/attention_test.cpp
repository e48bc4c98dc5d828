// Attention of every instruction set that can run here against sums in double, over memory of the exact size: with
// -DOCTAVO_SANITIZE=ON any read outside of it is found.
#include "attention.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "attention_kernel.h"
#include "require.h"

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

float widen(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float x;
    std::memcpy(&x, &wide, sizeof x);
    return x;
}

// Elements of either dtype.
class Array {
public:
    Array(int64_t size, int32_t dtype)
        : floats_(dtype == OCTAVO_FLOAT32 ? size : 0), halves_(dtype == OCTAVO_BFLOAT16 ? size : 0) {}

    void *data() { return floats_.empty() ? static_cast<void *>(halves_.data()) : floats_.data(); }

    float get(int64_t i) const { return floats_.empty() ? widen(halves_[i]) : floats_[i]; }

    // Truncates to bfloat16: any value will do for input.
    void set(int64_t i, float x) {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        if (floats_.empty())
            halves_[i] = static_cast<uint16_t>(bits >> 16);
        else
            floats_[i] = x;
    }

private:
    std::vector<float> floats_;
    std::vector<uint16_t> halves_;
};

// One sequence over one KV head whose blocks lie backwards in the pool; slots past the context hold NaN.
class Problem {
public:
    explicit Problem(const Case &c)
        : case_(c), num_blocks_((c.context_len + c.block_size - 1) / c.block_size),
          pool_(2LL * num_blocks_ * c.block_size * c.head_size, c.dtype),
          query_(1LL * c.num_new * c.group * c.head_size, c.dtype),
          output_(1LL * c.num_new * c.group * c.head_size, c.dtype) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        for (int32_t i = num_blocks_ - 1; i >= 0; --i) table_.push_back(i);
        for (int32_t position = 0; position < num_blocks_ * c.block_size; ++position)
            for (int32_t d = 0; d < c.head_size; ++d)
                for (int32_t which : {0, 1})
                    pool_.set(place(which, position) + d,
                              position < c.context_len ? normal(random) : std::numeric_limits<float>::quiet_NaN());
        for (int64_t i = 0; i < 1LL * c.num_new * c.group * c.head_size; ++i) query_.set(i, normal(random));
    }

    void attend() {
        const int32_t starts[] = {0, case_.num_new};
        octavo_paged_attention_params params = {};
        params.cache = {pool_.data(), num_blocks_, 1, 1, case_.block_size, case_.head_size, case_.dtype};
        params.query = query_.data();
        params.output = output_.data();
        params.query_starts = starts;
        params.context_lens = &case_.context_len;
        params.block_tables = table_.data();
        params.num_tokens = case_.num_new;
        params.query_stride = int64_t{case_.group} * case_.head_size;
        params.num_seqs = 1;
        params.max_blocks = num_blocks_;
        params.num_heads = case_.group;
        params.scale = kScale;
        octavo::paged_attention(params);
    }

    double largest_error() const {
        double error = 0;
        for (int32_t row = 0; row < case_.num_new * case_.group; ++row) {
            const std::vector<double> expected = dense(row);
            for (int32_t d = 0; d < case_.head_size; ++d) {
                const double difference = std::fabs(output_.get(int64_t{row} * case_.head_size + d) - expected[d]);
                if (!(difference <= error)) error = difference; // NaN too
            }
        }
        return error;
    }

private:
    static constexpr float kScale = 0.2f;

    int64_t place(int32_t which, int32_t position) const {
        const int64_t block = table_[position / case_.block_size];
        return ((block * 2 + which) * case_.block_size + position % case_.block_size) * case_.head_size;
    }

    std::vector<double> dense(int32_t row) const {
        const int32_t visible = case_.context_len - case_.num_new + row / case_.group + 1;
        std::vector<double> sums(case_.head_size);
        double total = 0;
        for (int32_t position = 0; position < visible; ++position) {
            double score = 0;
            for (int32_t d = 0; d < case_.head_size; ++d)
                score += double{query_.get(int64_t{row} * case_.head_size + d)} * pool_.get(place(0, position) + d);
            const double weight = std::exp(score * kScale);
            total += weight;
            for (int32_t d = 0; d < case_.head_size; ++d) sums[d] += weight * pool_.get(place(1, position) + d);
        }
        for (double &sum : sums) sum /= total;
        return sums;
    }

    Case case_;
    int32_t num_blocks_;
    std::vector<int32_t> table_;
    Array pool_, query_, output_;
};

void attends_like_dense_attention(const AttentionKernels &kernels) {
    octavo::chosen = &kernels;
    for (const int32_t dtype : {OCTAVO_FLOAT32, OCTAVO_BFLOAT16})
        for (const int32_t head_size : {8, 64, 72})
            for (const int32_t group : {1, 2, 3, 5})
                for (const int32_t num_new : {1, 45})
                    for (const int32_t context_len : {45, 96, 531}) {
                        Problem problem({head_size, group, 7, context_len, num_new, dtype});
                        problem.attend();
                        REQUIRE(problem.largest_error() < (dtype == OCTAVO_FLOAT32 ? 5e-6 : 2e-2));
                    }
    std::printf("%s: ok\n", kernels.isa);
}

} // namespace

int main() {
    attends_like_dense_attention(octavo::attention_kernels_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        attends_like_dense_attention(octavo::attention_kernels_avx2);
        attends_like_dense_attention(octavo::attention_kernels_avx512_emulated);
    }
#endif
}
