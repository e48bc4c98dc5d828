// Rotary, norms and activations, emulated, against float64.
#include <string>

#include "emulated.h"

using namespace emulated;

namespace {

template <class T> void rotary_turns_pairs_half_a_head_apart(int num_tokens, int num_heads, int head_size) {
    const int num_positions = 11, half = head_size / 2, stride = num_heads * head_size + 8;
    const std::vector<float> cosines = normal<float>(num_positions * half, 1);
    const std::vector<float> sines = normal<float>(num_positions * half, 2);
    const std::vector<T> before = normal<T>(num_tokens * stride, 3);
    std::vector<int64_t> positions(num_tokens);
    for (int token = 0; token < num_tokens; ++token) positions[token] = (7 * token + 10) % num_positions;
    std::vector<T> heads(before);
    REQUIRE(octavo_cuda_rotary({heads.data(), cosines.data(), sines.data(), positions.data(), num_tokens, stride,
                                num_heads, head_size, Element<T>::kDtype, num_positions},
                               nullptr) == OCTAVO_OK);
    for (int token = 0; token < num_tokens; ++token)
        for (int place = 0; place < stride; ++place) {
            const int channel = place % head_size, pair = channel % half;
            const auto value = [&](int at) { return double{Element<T>::to_float(before[token * stride + at])}; };
            const double cosine = cosines[positions[token] * half + pair], sine = sines[positions[token] * half + pair];
            double expected = value(place); // what lies between the tokens stays
            if (place < num_heads * head_size)
                expected = channel < half ? value(place) * cosine - value(place + half) * sine
                                          : value(place) * cosine + value(place - half) * sine;
            require_close(heads[token * stride + place], expected);
        }
}

struct Moments {
    double center;
    double scale;
};

Moments moments_of(const double *row, int size, bool is_centered, double epsilon) {
    double center = 0, mean_square = 0;
    for (int i = 0; i < size && is_centered; ++i) center += row[i] / size;
    for (int i = 0; i < size; ++i) mean_square += (row[i] - center) * (row[i] - center) / size;
    return {center, 1 / std::sqrt(mean_square + epsilon)};
}

template <class T>
void norm_adds_the_input_and_scales(int num_tokens, int size, bool is_centered, bool has_input, bool has_bias) {
    const std::vector<T> input = normal<T>(num_tokens * size, 1);
    const std::vector<float> before = normal<float>(num_tokens * size, 2, 3), weight = normal<float>(size, 3);
    const std::vector<float> bias = normal<float>(size, 4);
    std::vector<float> residual(before);
    std::vector<T> output = not_numbers<T>(num_tokens * size);
    const octavo_norm_params params{has_input ? input.data() : nullptr,
                                    residual.data(),
                                    weight.data(),
                                    has_bias ? bias.data() : nullptr,
                                    output.data(),
                                    num_tokens,
                                    size,
                                    Element<T>::kDtype,
                                    1e-5f};
    REQUIRE((is_centered ? octavo_cuda_layer_norm : octavo_cuda_rms_norm)(params, nullptr) == OCTAVO_OK);
    for (int token = 0; token < num_tokens; ++token) {
        std::vector<double> row(size);
        for (int i = 0; i < size; ++i)
            row[i] = before[token * size + i] + (has_input ? Element<T>::to_float(input[token * size + i]) : 0.0);
        const Moments moments = moments_of(row.data(), size, is_centered, 1e-5);
        for (int i = 0; i < size; ++i) {
            require_close(residual[token * size + i], row[i]);
            const double shift = is_centered && has_bias ? bias[i] : 0.0;
            require_close(output[token * size + i], (row[i] - moments.center) * moments.scale * weight[i] + shift);
        }
    }
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

template <class T> void silu_of_the_gates_lets_the_others_through(int num_tokens, int width) {
    const std::vector<T> input = normal<T>(2 * num_tokens * width, 1, 4);
    std::vector<T> output = not_numbers<T>(num_tokens * width);
    REQUIRE(octavo_cuda_silu_mul({input.data(), output.data(), num_tokens, width, Element<T>::kDtype}, nullptr) ==
            OCTAVO_OK);
    for (int token = 0; token < num_tokens; ++token)
        for (int i = 0; i < width; ++i) {
            const double gate = Element<T>::to_float(input[2 * token * width + i]);
            const double up = Element<T>::to_float(input[(2 * token + 1) * width + i]);
            require_close(output[token * width + i], silu(gate) * up);
        }
}

template <class T> void gelu_has_both_forms(int num_tokens, int width) {
    const std::vector<T> input = normal<T>(num_tokens * width, 1, 4);
    std::vector<T> exact = not_numbers<T>(input.size()), approximated = not_numbers<T>(input.size());
    octavo_activation_params params{input.data(), exact.data(), num_tokens, width, Element<T>::kDtype};
    REQUIRE(octavo_cuda_gelu(params, nullptr) == OCTAVO_OK);
    params.output = approximated.data();
    REQUIRE(octavo_cuda_gelu_tanh(params, nullptr) == OCTAVO_OK);
    for (size_t i = 0; i < input.size(); ++i) {
        require_close(exact[i], gelu(Element<T>::to_float(input[i])));
        require_close(approximated[i], gelu_tanh(Element<T>::to_float(input[i])));
    }
}

void saturated_activations_stay_finite() {
    const std::vector<float> input{-1e30f, -200, -0.0f, 0, 200, 1e30f, 88, -88, 1, 1, 1, 1, 1, 1, 1, 1};
    std::vector<float> output(8);
    REQUIRE(octavo_cuda_silu_mul({input.data(), output.data(), 1, 8, OCTAVO_FLOAT32}, nullptr) == OCTAVO_OK);
    for (int i = 0; i < 8; ++i) require_close(output[i], silu(input[i]));
}

void require_refused(int32_t status, const std::string &message) {
    REQUIRE(status == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(octavo_last_error() == message);
}

void bad_arguments_are_refused_with_name_value_and_limit() {
    std::vector<float> values(32);
    float *data = values.data();
    require_refused(octavo_cuda_gelu({data, data, 1, 12, OCTAVO_FLOAT32}, nullptr),
                    "width is 12, must be a positive multiple of 8");
    require_refused(octavo_cuda_gelu({data, data, 1, 8, 7}, nullptr), "dtype is 7, must be in 0..2");
    require_refused(octavo_cuda_gelu({data + 1, data, 1, 8, OCTAVO_FLOAT32}, nullptr),
                    "input does not start at a multiple of 16 bytes");
    require_refused(octavo_cuda_rms_norm({nullptr, data, nullptr, nullptr, data, 1, 8, OCTAVO_FLOAT32, 0}, nullptr),
                    "weight is null");
    require_refused(octavo_cuda_rotary({data, data, data, nullptr, 1, 16, 2, 16, OCTAVO_FLOAT32, 1}, nullptr),
                    "token_stride is 16, must be at least num_heads * head_size");
}

void no_tokens_are_no_work() {
    REQUIRE(octavo_cuda_gelu({nullptr, nullptr, 0, 8, OCTAVO_FLOAT32}, nullptr) == OCTAVO_OK);
    REQUIRE(octavo_cuda_rms_norm({nullptr, nullptr, nullptr, nullptr, nullptr, 0, 8, OCTAVO_FLOAT32, 0}, nullptr) ==
            OCTAVO_OK);
    REQUIRE(octavo_cuda_rotary({nullptr, nullptr, nullptr, nullptr, 0, 16, 1, 16, OCTAVO_FLOAT32, 0}, nullptr) ==
            OCTAVO_OK);
}

} // namespace

int main() {
    in_every_order([] {
        for_every_element([](auto element) {
            using T = decltype(element);
            for (const int head_size : {16, 64, 80, 96, 128, 256})
                rotary_turns_pairs_half_a_head_apart<T>(3, 5, head_size);
            for (const int size : {8, 64, 576, 2056})
                for (const int options : {0, 1, 2, 3, 4, 7})
                    norm_adds_the_input_and_scales<T>(2, size, options & 1, options & 2, options & 4);
            for (const int width : {8, 72, 1536}) {
                silu_of_the_gates_lets_the_others_through<T>(3, width);
                gelu_has_both_forms<T>(3, width);
            }
        });
    });
    saturated_activations_stay_finite();
    bad_arguments_are_refused_with_name_value_and_limit();
    no_tokens_are_no_work();
}
