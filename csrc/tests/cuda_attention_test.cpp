// The CUDA kernels for attention and write-kv, emulated, beside float64; the emulation's orders must not matter.
#include "attention_problem.h"

namespace {

using emulated::AttentionProblem;
using emulated::Element;
using emulated::Lengths;
using emulated::Shape;

const std::vector<Lengths> kDecodes = {{1, 1}, {33, 1}, {70, 1}};
const std::vector<Lengths> kRagged = {{40, 40}, {33, 1}, {0, 0}, {90, 21}};

template <class T> void attends(const Shape &shape, const std::vector<Lengths> &lengths, bool split = false) {
    AttentionProblem<T> problem(shape, lengths);
    problem.attend(split);
    REQUIRE(problem.is_right());
}

void every_head_size_of_every_element_is_close_to_float64() {
    emulated::for_every_element([](auto element) {
        for (const int32_t head_size : {64, 80, 96, 128, 256}) {
            attends<decltype(element)>({head_size, 1, 3, 16}, kDecodes);
            attends<decltype(element)>({head_size, 2, 1, 16}, {{40, 40}});
        }
    });
}

void every_block_size_serves_decodes_and_chunks() {
    for (int32_t block_size = 1; block_size <= 256; block_size *= 2)
        attends<__nv_bfloat16>({64, 2, 2, block_size}, kRagged);
}

void query_heads_in_any_number_share_a_kv_head() {
    for (const int32_t group : {1, 3, 8, 20}) attends<__half>({64, 1, group, 8}, {{50, 1}, {20, 7}});
}

void no_order_of_threads_changes_the_result() {
    emulated::in_every_order([] {
        attends<float>({64, 1, 2, 16}, kRagged);
        attends<__nv_bfloat16>({80, 1, 3, 4}, kRagged);
        attends<__nv_bfloat16>({64, 1, 2, 16}, {{600, 2}}, true);
    });
}

template <class T> void splitting_leaves_every_bit_alone() {
    AttentionProblem<T> problem({64, 1, 2, 16}, {{1100, 3}, {20, 1}, {513, 2}});
    problem.attend(false);
    REQUIRE(problem.is_right());
    const std::vector<float> in_one_pass = problem.output();
    problem.attend(true);
    REQUIRE(problem.output() == in_one_pass);
}

template <class T> void decoding_and_prefilling_give_the_same_bits() {
    AttentionProblem<T> problem({64, 1, 2, 16}, {{530, 40}});
    problem.attend(false);
    const std::vector<float> together = problem.output();
    const size_t row = 2 * 64;
    for (const int32_t token : {0, 17, 21, 22, 39})
        for (const bool split : {false, true}) {
            const std::vector<float> alone = problem.attend_alone(1, 39 - token, split);
            REQUIRE(std::equal(alone.begin(), alone.end(), together.begin() + token * row));
        }
    const std::vector<float> chunk = problem.attend_alone(23, 0, true);
    REQUIRE(std::equal(chunk.begin(), chunk.end(), together.begin() + 17 * row));
}

template <class T> void keys_and_values_land_in_their_slots_and_nowhere_else() {
    constexpr int32_t kHeads = 5, kHeadSize = 80, kBlockSize = 4, kTokens = 3, kStride = 2 * kHeads * kHeadSize;
    const auto fused = emulated::normal<T>(kTokens * kStride, 1); // keys and values of a token side by side
    auto pool = emulated::not_numbers<T>(4 * 2 * 2 * kHeads * kBlockSize * kHeadSize);
    const int64_t slots[kTokens] = {13, 0, 6};
    octavo_write_kv_params params = {};
    params.cache = {pool.data(), 4, 2, kHeads, kBlockSize, kHeadSize, Element<T>::kDtype};
    params.key = fused.data();
    params.value = fused.data() + kHeads * kHeadSize;
    params.slot_mapping = slots;
    params.num_tokens = kTokens;
    params.key_stride = params.value_stride = kStride;
    params.layer = 1;
    REQUIRE(octavo_cuda_write_kv(params, nullptr) == OCTAVO_OK);
    auto expected = emulated::not_numbers<T>(pool.size());
    for (int32_t token = 0; token < kTokens; ++token)
        for (int32_t i = 0; i < kStride; ++i) {
            const int32_t heads = i / kHeadSize; // keys' heads, then values'
            const int64_t place = (slots[token] / kBlockSize * 2 + 1) * 2 * kHeads + heads;
            expected[(place * kBlockSize + slots[token] % kBlockSize) * kHeadSize + i % kHeadSize] =
                fused[token * kStride + i];
        }
    for (size_t i = 0; i < pool.size(); ++i) {
        const float actual = Element<T>::to_float(pool[i]), wanted = Element<T>::to_float(expected[i]);
        REQUIRE(actual == wanted || (std::isnan(actual) && std::isnan(wanted)));
    }
}

void what_no_kernel_handles_is_refused_by_name() {
    octavo_paged_attention_params params = {};
    float element = 0;
    params.cache = {&element, 1, 1, 1, 16, 72, OCTAVO_FLOAT16};
    params.num_heads = 1;
    params.query_stride = 72;
    params.num_tokens = 0;
    REQUIRE(octavo_cuda_paged_attention(params, nullptr, nullptr) == OCTAVO_INVALID_ARGUMENT);
    params.cache.block_size = 24;
    REQUIRE(octavo_cuda_paged_attention(params, nullptr, nullptr) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()).find("block_size is 24") != std::string::npos);
}

} // namespace

int main() {
    emulated::for_every_element([](auto element) {
        using T = decltype(element);
        keys_and_values_land_in_their_slots_and_nowhere_else<T>();
        splitting_leaves_every_bit_alone<T>();
        decoding_and_prefilling_give_the_same_bits<T>();
    });
    every_head_size_of_every_element_is_close_to_float64();
    every_block_size_serves_decodes_and_chunks();
    query_heads_in_any_number_share_a_kv_head();
    no_order_of_threads_changes_the_result();
    what_no_kernel_handles_is_refused_by_name();
}
