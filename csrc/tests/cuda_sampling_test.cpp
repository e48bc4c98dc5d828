// The sampler, emulated, against a plain one that sorts (docs/sampling.md).
#include <functional>
#include <string>

#include "emulated.h"
#include "philox.h"

using namespace emulated;

namespace {

struct Rows {
    int vocab_size;
    std::vector<float> logits; // [num_rows][vocab_size]
    std::vector<octavo_sampling_row> rows;
    std::vector<int64_t> seen_token_ids;
    std::vector<int64_t> output_counts;
};

octavo_sampling_row plain_row(float temperature) {
    octavo_sampling_row row{};
    row.top_p = 1;
    row.temperature = temperature;
    row.log_min_p = -INFINITY;
    row.repetition_penalty = 1;
    return row;
}

template <class T> std::vector<int64_t> sampled(const Rows &batch) {
    std::vector<T> logits(batch.logits.size());
    std::transform(batch.logits.begin(), batch.logits.end(), logits.begin(), Element<T>::from);
    const int num_rows = static_cast<int>(batch.rows.size());
    std::vector<float> workspace = not_numbers<float>(num_rows * ((batch.vocab_size + 3) / 4 * 4));
    std::vector<int64_t> token_ids(num_rows, -7);
    octavo_sample_params params{};
    params.logits = logits.data();
    params.rows = batch.rows.data();
    params.seen_token_ids = batch.seen_token_ids.data();
    params.output_counts = batch.output_counts.data();
    params.workspace = workspace.data();
    params.token_ids = token_ids.data();
    params.num_logits = params.num_rows = num_rows;
    params.vocab_size = batch.vocab_size;
    params.dtype = Element<T>::kDtype;
    REQUIRE(octavo_cuda_sample(params, nullptr) == OCTAVO_OK);
    return token_ids;
}

double uniform(const octavo_sampling_row &row) {
    return octavo::random_bits52(row.seed, row.choice_index, row.position) * 0x1p-52;
}

void keep_from(std::vector<float> &values, float threshold, float filling) {
    for (float &value : values)
        if (value < threshold) value = filling;
}

std::vector<float> from_the_largest(std::vector<float> values) {
    std::sort(values.begin(), values.end(), std::greater<float>());
    return values;
}

void keep_nucleus(std::vector<float> &weights, double top_p) {
    double mass = 0, reached = 0;
    for (const float weight : weights) mass += weight;
    for (const float weight : from_the_largest(weights))
        if ((reached += weight) >= mass * top_p) return keep_from(weights, weight, 0);
}

int64_t drawn(const std::vector<float> &weights, double number) {
    double mass = 0, reached = 0;
    for (const float weight : weights) mass += weight;
    for (size_t token = 0; token < weights.size(); ++token)
        if ((reached += weights[token]) > mass * number) return static_cast<int64_t>(token);
    return -1;
}

int64_t plainly_sampled(const Rows &batch, size_t index) {
    const octavo_sampling_row &row = batch.rows[index];
    const auto begin = batch.logits.begin() + index * batch.vocab_size;
    std::vector<float> values(begin, begin + batch.vocab_size);
    for (int64_t i = row.seen_start; i < row.seen_end; ++i) {
        float &logit = values[batch.seen_token_ids[i]];
        logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
        logit -= row.frequency_penalty * batch.output_counts[i];
        logit -= batch.output_counts[i] > 0 ? row.presence_penalty : 0;
    }
    const auto largest = std::max_element(values.begin(), values.end());
    if (row.temperature == 0) return largest - values.begin();
    const float top = *largest;
    for (float &value : values) value = (value - top) / row.temperature;
    keep_from(values, row.log_min_p, -INFINITY);
    if (row.top_k > 0 && row.top_k < batch.vocab_size)
        keep_from(values, from_the_largest(values)[row.top_k - 1], -INFINITY);
    for (float &value : values) value = std::exp(value);
    if (row.top_p < 1) keep_nucleus(values, row.top_p);
    return drawn(values, uniform(row));
}

octavo_sampling_row random_row(std::mt19937_64 &random) {
    const auto one_of = [&](auto... choices) {
        const double values[] = {static_cast<double>(choices)...};
        return values[random() % sizeof...(choices)];
    };
    octavo_sampling_row row = plain_row(static_cast<float>(one_of(0, 0.3, 1, 1, 2.5)));
    row.top_p = one_of(1, 0.95, 0.5, 0.01, 0);
    row.top_k = static_cast<int32_t>(one_of(0, 0, 1, 7, 60, 100000));
    row.log_min_p = std::log(static_cast<float>(one_of(0, 0, 0.01, 0.3, 1)));
    row.repetition_penalty = static_cast<float>(one_of(1, 1.3, 0.7));
    row.frequency_penalty = static_cast<float>(one_of(0, 0.4));
    row.presence_penalty = static_cast<float>(one_of(0, -0.6));
    row.seed = random();
    row.position = static_cast<uint32_t>(random());
    row.choice_index = static_cast<uint32_t>(random() % 3);
    return row;
}

// `step` rounds the logits, so that many are equal.
Rows random_rows(int num_rows, int vocab_size, unsigned seed, float step) {
    Rows batch{vocab_size, normal<float>(num_rows * vocab_size, seed, 2), {}, {}, {}};
    for (float &logit : batch.logits) logit = std::round(logit / step) * step;
    std::mt19937_64 random(seed);
    for (int index = 0; index < num_rows; ++index) {
        octavo_sampling_row row = random_row(random);
        row.seen_start = static_cast<int64_t>(batch.seen_token_ids.size());
        for (int token = index; token < vocab_size; token += 5) {
            batch.seen_token_ids.push_back(token);
            batch.output_counts.push_back(static_cast<int64_t>(random() % 3));
        }
        row.seen_end = static_cast<int64_t>(batch.seen_token_ids.size());
        batch.logits[index * vocab_size + random() % vocab_size] = -INFINITY; // forbidden
        batch.rows.push_back(row);
    }
    return batch;
}

void tokens_are_those_of_the_plain_sampler(int num_rows, int vocab_size, unsigned seed, float step) {
    const Rows batch = random_rows(num_rows, vocab_size, seed, step);
    const std::vector<int64_t> token_ids = sampled<float>(batch);
    for (size_t row = 0; row < batch.rows.size(); ++row) REQUIRE(token_ids[row] == plainly_sampled(batch, row));
}

template <class T> void a_row_does_not_depend_on_the_others() {
    Rows batch = random_rows(3, 71, 5, 0.25f); // of few bits, so that every type holds them
    const std::vector<int64_t> together = sampled<T>(batch);
    REQUIRE(together == sampled<float>(batch));
    for (int index = 0; index < 3; ++index) {
        Rows alone = batch;
        alone.rows = {batch.rows[index]};
        alone.logits.assign(batch.logits.begin() + index * 71, batch.logits.begin() + (index + 1) * 71);
        REQUIRE(sampled<T>(alone).front() == together[index]);
    }
}

void draws_follow_the_probabilities() {
    Rows batch{4, {}, {}, {}, {}};
    const double probabilities[] = {0.5, 0.25, 0.1875, 0.0625};
    for (uint32_t position = 0; position < 400; ++position) {
        for (const double probability : probabilities)
            batch.logits.push_back(std::log(static_cast<float>(probability)));
        batch.rows.push_back(plain_row(1));
        batch.rows.back().position = position;
    }
    int counts[4] = {};
    for (const int64_t token : sampled<float>(batch)) ++counts[token];
    for (int token = 0; token < 4; ++token) // within five standard deviations
        REQUIRE(std::fabs(counts[token] - 400 * probabilities[token]) < 5 * std::sqrt(400 * probabilities[token]));
}

void rows_without_a_token_say_so() {
    Rows batch{5, std::vector<float>(4 * 5, -INFINITY), {}, {}, {}};
    for (const float temperature : {0.0f, 1.0f, 1.0f, 0.0f}) batch.rows.push_back(plain_row(temperature));
    batch.logits[2 * 5 + 3] = NAN;
    batch.logits[3 * 5 + 1] = INFINITY;
    REQUIRE(sampled<float>(batch) == (std::vector<int64_t>{OCTAVO_NO_TOKEN, OCTAVO_NO_TOKEN, OCTAVO_LOGITS_NOT_FINITE,
                                                           OCTAVO_LOGITS_NOT_FINITE}));
}

void the_first_of_equals_is_the_largest() {
    Rows batch{2100, std::vector<float>(2 * 2100, 1.5f), {plain_row(0), plain_row(0)}, {}, {}};
    batch.logits[2100 + 2077] = batch.logits[2100 + 2099] = 2;
    REQUIRE(sampled<float>(batch) == (std::vector<int64_t>{0, 2077}));
}

void philox_gives_the_numbers_of_the_paper() {
    const auto words = [](octavo::PhiloxWords counter, uint32_t key0, uint32_t key1) {
        const octavo::PhiloxWords drawn = octavo::philox4x32(counter, key0, key1);
        return std::vector<uint32_t>(drawn.words, drawn.words + 4);
    };
    REQUIRE(words({{0, 0, 0, 0}}, 0, 0) == (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    REQUIRE(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0) ==
            (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

void bad_arguments_are_refused() {
    octavo_sample_params params{};
    params.vocab_size = OCTAVO_MAX_VOCAB_SIZE + 1;
    REQUIRE(octavo_cuda_sample(params, nullptr) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()) == "vocab_size is 262145, must be in 1..262144");
    params.vocab_size = 8;
    REQUIRE(octavo_cuda_sample(params, nullptr) == OCTAVO_OK); // no rows
    float logprob = 0;
    params.logprobs = &logprob;
    REQUIRE(octavo_cuda_sample(params, nullptr) == OCTAVO_INVALID_ARGUMENT);
}

} // namespace

int main() {
    in_every_order([] {
        tokens_are_those_of_the_plain_sampler(8, 71, 1, 0.01f);
        tokens_are_those_of_the_plain_sampler(8, 72, 2, 0.5f);
        tokens_are_those_of_the_plain_sampler(2, 4099, 3, 0.01f);
    });
    if (kFindsRaces) return 0; // the rest takes the same paths again
    tokens_are_those_of_the_plain_sampler(40, 200, 4, 0.05f);
    for_every_element([](auto element) { a_row_does_not_depend_on_the_others<decltype(element)>(); });
    draws_follow_the_probabilities();
    rows_without_a_token_say_so();
    the_first_of_equals_is_the_largest();
    philox_gives_the_numbers_of_the_paper();
    bad_arguments_are_refused();
}
