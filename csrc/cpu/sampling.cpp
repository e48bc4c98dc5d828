#include "sampling.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "aligned_memory.h"
#include "philox.h"
#include "sampling_kernel.h"
#include "selection.h"
#include "token_rules.h"

namespace octavo {
namespace {

// The arrays of one row's work, one after the other in its scratch.
class Work {
public:
    Work(void *scratch, int64_t vocab_size) {
        Carver carver(static_cast<char *>(scratch));
        const int64_t num_blocks = num_token_blocks(vocab_size), num_values = num_blocks * kBlockTokens;
        values = carver.take<float>(num_values);
        candidates = carver.take<float>(num_values);
        token_ids = carver.take<int32_t>(num_values);
        block_largest = carver.take<float>(num_blocks);
        block_sums = carver.take<double>(num_blocks);
        buckets = carver.take<double>(kNumDigits);
        num_bytes_ = carver.taken();
    }

    int64_t num_bytes() const { return num_bytes_; }

    SelectionScratch selection() const { return {candidates, buckets}; }

    float *values; // logits after the rules, then weights
    float *candidates;
    int32_t *token_ids;
    float *block_largest;
    double *block_sums;
    double *buckets;

private:
    int64_t num_bytes_;
};

int64_t first_equal_to(float wanted, const BlockedRow &row) {
    int64_t block = 0;
    while (row.block_largest[block] != wanted) ++block;
    int64_t token_id = block * kBlockTokens;
    while (row.values[token_id] != wanted) ++token_id;
    return token_id;
}

// The first token up to which the weights of at least `smallest` exceed `target`, which is less than their total. Where
// a block's sum was rounded up past what its weights reach one by one, its last token.
int64_t token_beyond(double target, float smallest, const Work &work, int64_t num_blocks) {
    double reached = 0;
    int64_t b = 0;
    for (; b + 1 < num_blocks && reached + work.block_sums[b] <= target; ++b) reached += work.block_sums[b];
    int64_t token_id = b * kBlockTokens;
    for (int64_t i = token_id; i < (b + 1) * kBlockTokens && reached <= target; ++i) {
        if (work.values[i] < smallest || work.values[i] == 0) continue;
        reached += work.values[i];
        token_id = i;
    }
    return token_id;
}

// By the probabilities of a row that has a finite logit; `largest` of them all.
int64_t draw(const octavo_sampling_row &rules, const BlockedRow &row, float largest, const Work &work) {
    const SamplingKernels &kernels = sampling_kernels();
    const int64_t num_blocks = num_token_blocks(row.size);
    const float temperature = std::max(rules.temperature, FLT_MIN);
    float threshold = rules.log_min_p;
    if (rules.top_k > 0 && rules.top_k < row.size) {
        const float last = nth_largest(row, rules.top_k, work.selection());
        threshold = std::max(threshold, (last - largest) / temperature);
    }
    double total = kernels.weigh(row.values, row.size, largest, temperature, threshold, work.values, work.block_sums);
    float smallest = 0;
    if (rules.top_p < 1) {
        smallest = last_of_nucleus(work.values, num_blocks, total * rules.top_p, work.block_sums, work.selection());
        total = kernels.sum_from(smallest, work.values, num_blocks, work.block_sums);
    }
    const uint64_t bits = random_bits52(rules.seed, rules.choice_index, rules.position);
    return token_beyond(total * (static_cast<double>(bits) * 0x1p-52), smallest, work, num_blocks);
}

// `row` is of the model's own logits, which are finite.
int64_t choose(const octavo_sample_params &params, const octavo_sampling_row &rules, BlockedRow row, float largest,
               const Work &work) {
    if (is_ruled(rules)) {
        apply_rules(params, rules, row.values, work.values);
        row.values = work.values;
        largest = sampling_kernels().find_largest(row.values, row.size, work.block_largest);
        if (largest == -INFINITY) return OCTAVO_NO_TOKEN;
    }
    return rules.temperature > 0 ? draw(rules, row, largest, work) : first_equal_to(largest, row);
}

void tell_top(const octavo_sample_params &params, const octavo_sampling_row &rules, const BlockedRow &row,
              double normalizer, const Work &work) {
    find_top_tokens(row, rules.num_top, work.selection(), work.token_ids);
    for (int32_t i = 0; i < rules.num_top; ++i) {
        params.top_token_ids[rules.top_start + i] = work.token_ids[i];
        params.top_logprobs[rules.top_start + i] = static_cast<float>(row.values[work.token_ids[i]] - normalizer);
    }
}

// What is told of a row of logits that are not finite.
void tell_nothing(const octavo_sample_params &params, const octavo_sampling_row &rules, int64_t index) {
    if (!rules.is_known) params.token_ids[index] = OCTAVO_LOGITS_NOT_FINITE;
    if (params.logprobs != nullptr) params.logprobs[index] = NAN;
    for (int32_t i = 0; i < rules.num_top; ++i) {
        params.top_token_ids[rules.top_start + i] = 0;
        params.top_logprobs[rules.top_start + i] = NAN;
    }
}

} // namespace

int64_t sample_scratch_bytes(int64_t vocab_size) { return Work(nullptr, vocab_size).num_bytes(); }

void sample_row(const octavo_sample_params &params, int64_t index, const float *logits, void *scratch) {
    const SamplingKernels &kernels = sampling_kernels();
    const octavo_sampling_row &rules = params.rows[index];
    const Work work(scratch, params.vocab_size);
    const BlockedRow row{logits, work.block_largest, params.vocab_size};
    const float largest = kernels.find_largest(logits, row.size, work.block_largest);
    const double sum = std::fabs(largest) <= FLT_MAX ? kernels.sum_of_exponentials(logits, row.size, largest) : NAN;
    if (std::isnan(sum)) return tell_nothing(params, rules, index);
    const double normalizer = std::log(sum) + largest;
    if (rules.num_top > 0) tell_top(params, rules, row, normalizer, work);
    int64_t &token_id = params.token_ids[index];
    if (!rules.is_known) token_id = choose(params, rules, row, largest, work);
    if (params.logprobs != nullptr)
        params.logprobs[index] = token_id == OCTAVO_NO_TOKEN ? 0 : static_cast<float>(logits[token_id] - normalizer);
}

} // namespace octavo
