#include "selection.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "sampling_kernel.h"

namespace octavo {
namespace {

constexpr int kNarrowingPasses = 10; // then an eighth of an octave is left of the range from 0 to 1

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// An unsigned number for each float, in the same order.
uint32_t key_of(float value) {
    const uint32_t bits = bits_of(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Digit {
    int shift;
    uint32_t mask;

    uint32_t of(float value) const { return key_of(value) >> shift & mask; }
};

constexpr Digit kDigits[] = {{21, 0x7ff}, {10, 0x7ff}, {0, 0x3ff}};
static_assert(kNumDigits == 0x7ff + 1);

struct One {
    double operator()(float) const { return 1; }
};

struct Itself {
    double operator()(float weight) const { return weight; }
};

// From the largest of `values` on, the one with which their masses reach `target`; the smallest if none does. Looks at
// one digit of the keys after the other; each keeps the values of one bucket. Every mass is more than 0.
template <class Mass>
float value_reaching(double target, float *values, int64_t size, Mass mass, const SelectionScratch &scratch) {
    double above = 0;
    for (const Digit digit : kDigits) {
        double *buckets = scratch.buckets;
        std::fill(buckets, buckets + kNumDigits, 0.0);
        for (int64_t i = 0; i < size; ++i) buckets[digit.of(values[i])] += mass(values[i]);
        uint32_t chosen = 0;
        double up_to_chosen = above;
        for (uint32_t bucket = digit.mask + 1; bucket-- > 0;) {
            if (buckets[bucket] == 0) continue;
            chosen = bucket;
            above = up_to_chosen;
            up_to_chosen += buckets[bucket];
            if (up_to_chosen >= target) break;
        }
        int64_t kept = 0;
        for (int64_t i = 0; i < size; ++i) {
            const float value = values[i];
            values[kept] = value;
            kept += digit.of(value) == chosen;
        }
        size = kept;
    }
    return values[0];
}

// At least `count` values reach it: that many blocks have one that does.
float lower_bound_of_nth(const BlockedRow &row, int64_t count, const SelectionScratch &scratch) {
    const int64_t num_blocks = num_token_blocks(row.size);
    if (count > num_blocks) return -INFINITY;
    std::copy(row.block_largest, row.block_largest + num_blocks, scratch.candidates);
    return value_reaching(static_cast<double>(count), scratch.candidates, num_blocks, One{}, scratch);
}

// Visits the tokens of value `bound` and more, in their order.
template <class Visit> void each_from(float bound, const BlockedRow &row, Visit visit) {
    for (int64_t b = 0; b < num_token_blocks(row.size); ++b) {
        if (row.block_largest[b] < bound) continue;
        const int64_t end = std::min(row.size, (b + 1) * kBlockTokens);
        for (int64_t i = b * kBlockTokens; i < end; ++i)
            if (row.values[i] >= bound) visit(i);
    }
}

} // namespace

float nth_largest(const BlockedRow &row, int64_t count, const SelectionScratch &scratch) {
    const float bound = lower_bound_of_nth(row, count, scratch);
    int64_t num_candidates = 0;
    each_from(bound, row, [&](int64_t i) { scratch.candidates[num_candidates++] = row.values[i]; });
    return value_reaching(static_cast<double>(count), scratch.candidates, num_candidates, One{}, scratch);
}

float last_of_nucleus(const float *weights, int64_t num_blocks, double target, double *block_sums,
                      const SelectionScratch &scratch) {
    // Halves the range of floats in which it lies until few weights are left in it: those from `first` up reach the
    // target, those from `end` up do not.
    uint32_t first = 0, end = bits_of(1.0f) + 1;
    double from_end = 0;
    for (int pass = 0; pass < kNarrowingPasses; ++pass) {
        const uint32_t middle = first + (end - first) / 2;
        const double mass = sampling_kernels().sum_from(float_of(middle), weights, num_blocks, block_sums);
        if (mass >= target)
            first = middle;
        else
            end = middle, from_end = mass;
    }
    const float smallest = float_of(first), beyond = float_of(end);
    int64_t num_candidates = 0;
    for (int64_t i = 0; i < num_blocks * kBlockTokens; ++i) {
        scratch.candidates[num_candidates] = weights[i];
        num_candidates += weights[i] >= smallest && weights[i] < beyond && weights[i] > 0;
    }
    if (num_candidates == 0) return beyond; // rounded up past the sum of all
    return value_reaching(target - from_end, scratch.candidates, num_candidates, Itself{}, scratch);
}

void find_top_tokens(const BlockedRow &row, int64_t count, const SelectionScratch &scratch, int32_t *token_ids) {
    const float bound = lower_bound_of_nth(row, count, scratch);
    int64_t num_candidates = 0;
    each_from(bound, row, [&](int64_t i) { token_ids[num_candidates++] = static_cast<int32_t>(i); });
    std::partial_sort(token_ids, token_ids + count, token_ids + num_candidates, [&](int32_t a, int32_t b) {
        return row.values[a] > row.values[b] || (row.values[a] == row.values[b] && a < b);
    });
}

} // namespace octavo
