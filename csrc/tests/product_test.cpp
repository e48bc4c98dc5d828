// Products of packed weights on every instruction set that can run here, against sums in double of weights decoded on
// their own; memory of the exact size, so that with -DOCTAVO_SANITIZE=ON any access outside of it is found.
#include "product.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "aligned_memory.h"
#include "require.h"
#include "weight_blocks.h"

namespace octavo {
extern const ProductKernels product_kernels_avx512_emulated;
extern const ProductKernels product_bf16_kernels_avx512_emulated;
extern const ProductKernels product_bf16_kernels_amx_emulated;
extern const ProductKernels product_int8_kernels_avx512_emulated;
extern const ProductKernels product_int8_kernels_avx512_vnni_emulated;
} // namespace octavo

namespace {

using octavo::AlignedMemory;
using octavo::kPanel;
using octavo::PackedMatrix;
using octavo::ProductKernels;
using octavo_test::RandomWeights;

constexpr int32_t kFormats[] = {OCTAVO_WEIGHT_FLOAT32, OCTAVO_WEIGHT_BFLOAT16, OCTAVO_WEIGHT_Q8_0, OCTAVO_WEIGHT_Q4_0,
                                OCTAVO_WEIGHT_Q4_1,    OCTAVO_WEIGHT_Q4_K,     OCTAVO_WEIGHT_Q6_K};

// Weights, packed, and as double.
class Weights {
public:
    Weights(int32_t format, int64_t num_outputs, int64_t num_inputs)
        : random_(format, num_outputs, num_inputs, 5), packed_(octavo::packed_bytes(format, num_outputs, num_inputs)),
          matrix_{packed_.get(), num_outputs, num_inputs, format} {
        octavo::pack(format, random_.rows.data(), num_outputs, num_inputs, packed_.get());
    }

    const PackedMatrix &matrix() const { return matrix_; }

    double at(int64_t output, int64_t input) const {
        return random_.values[static_cast<std::size_t>(output * matrix_.num_inputs + input)];
    }

private:
    RandomWeights random_;
    AlignedMemory packed_;
    PackedMatrix matrix_;
};

std::vector<float> random_floats(int64_t count) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> floats(static_cast<std::size_t>(count));
    for (float &x : floats) x = normal(random);
    return floats;
}

// y [num_rows][stride] of `num_rows` rows from `first_row` on, panels cut at `cut`; whatever is not an output is -1.
std::vector<float> multiply(const ProductKernels &kernels, const PackedMatrix &weights, const std::vector<float> &x,
                            int64_t first_row, int64_t num_rows, int64_t cut) {
    const int64_t row_bytes = kernels.activation_bytes(weights.num_inputs), stride = weights.num_outputs + 3;
    const AlignedMemory rows(num_rows * row_bytes), scratch(kernels.scratch_bytes(weights.num_inputs));
    std::memset(scratch.get(), 0xff, static_cast<std::size_t>(kernels.scratch_bytes(weights.num_inputs))); // NaN
    for (int64_t row = 0; row < num_rows; ++row)
        kernels.prepare(x.data() + (first_row + row) * weights.num_inputs, weights.num_inputs,
                        rows.get() + row * row_bytes);
    std::vector<float> y(static_cast<std::size_t>(num_rows * stride), -1.0f);
    const int64_t num_panels = octavo::num_panels(weights.num_outputs), middle = cut < num_panels ? cut : num_panels;
    kernels.multiply(weights, rows.get(), num_rows, middle, num_panels, y.data(), stride, scratch.get());
    kernels.multiply(weights, rows.get(), num_rows, 0, middle, y.data(), stride, scratch.get());
    for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t i = weights.num_outputs; i < stride; ++i)
            REQUIRE(y[static_cast<std::size_t>(row * stride + i)] == -1.0f);
    return y;
}

struct Sizes {
    int64_t num_outputs, num_inputs;
};

std::vector<Sizes> sizes_of(int32_t format) {
    const int64_t block = octavo::inputs_per_block(format);
    if (block == 1) return {{5, 1}, {33, 7}, {64, 65}, {70, 130}, {32, 301}};
    return {{1, block}, {31, block}, {64, 2 * block}, {33, 3 * block}, {100, 5 * block}};
}

// To nearest, ties to even.
float rounded_to_bfloat16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

// 32 inputs as whole multiples of a 127th of their largest magnitude.
void round_to_bytes(const float *x, double *rounded) {
    float most = 0;
    for (int i = 0; i < 32; ++i) most = std::fmax(most, std::fabs(x[i]));
    for (int i = 0; i < 32; ++i)
        rounded[i] = most < 1e-30f ? 0 : std::nearbyint(x[i] * (127.0f / most)) * double{most} / 127;
}

double rounded(double x, int32_t precision) {
    return precision == OCTAVO_PRECISION_BFLOAT16 ? rounded_to_bfloat16(static_cast<float>(x)) : x;
}

std::vector<double> rounded_activations(const std::vector<float> &x, int32_t precision) {
    std::vector<double> all(x.size());
    if (precision == OCTAVO_PRECISION_INT8) {
        for (std::size_t first = 0; first < x.size(); first += 32) round_to_bytes(&x[first], &all[first]);
    } else {
        for (std::size_t i = 0; i < x.size(); ++i) all[i] = rounded(x[i], precision);
    }
    return all;
}

// The order of adding leaves at most an error of this times the sum of the magnitudes.
constexpr double kTolerance = 2e-6;

void sums_are_those_of_the_weights(const ProductKernels &kernels, int32_t precision, const Weights &weights,
                                   int64_t num_rows) {
    const PackedMatrix &matrix = weights.matrix();
    const std::vector<float> x = random_floats(num_rows * matrix.num_inputs);
    const std::vector<double> values = rounded_activations(x, precision);
    const std::vector<float> y = multiply(kernels, matrix, x, 0, num_rows, 1);
    for (int64_t row = 0; row < num_rows; ++row)
        for (int64_t output = 0; output < matrix.num_outputs; ++output) {
            double sum = 0, magnitude = 1e-12;
            for (int64_t k = 0; k < matrix.num_inputs; ++k) {
                const double value = values[static_cast<std::size_t>(row * matrix.num_inputs + k)];
                const double term = rounded(weights.at(output, k), precision) * value;
                sum += term;
                magnitude += std::fabs(term);
            }
            const float got = y[static_cast<std::size_t>(row * (matrix.num_outputs + 3) + output)];
            REQUIRE(std::fabs(got - sum) <= kTolerance * magnitude);
        }
}

void a_row_has_the_same_bits_among_any_others(const ProductKernels &kernels, const PackedMatrix &matrix) {
    constexpr int64_t kMostRows = 300;
    const std::vector<float> x = random_floats(kMostRows * matrix.num_inputs);
    const auto stride = static_cast<std::size_t>(matrix.num_outputs + 3);
    const std::vector<float> all = multiply(kernels, matrix, x, 0, kMostRows, 1);
    const auto require_same = [&](int64_t first_row, int64_t num_rows, int64_t cut) {
        const std::vector<float> some = multiply(kernels, matrix, x, first_row, num_rows, cut);
        REQUIRE(std::memcmp(some.data(), all.data() + static_cast<std::size_t>(first_row) * stride,
                            some.size() * sizeof(float)) == 0);
    };
    for (int64_t num_rows = 1; num_rows <= 34; ++num_rows) require_same(num_rows, num_rows, num_rows % 3);
    for (int64_t num_rows : {48, 64, 127, 130, 251, 253}) require_same(300 - num_rows, num_rows, 0);
}

void single_rows_are_unpacked_exactly(const Weights &weights) {
    const PackedMatrix &matrix = weights.matrix();
    std::vector<float> row(static_cast<std::size_t>(matrix.num_inputs));
    for (int64_t output = 0; output < matrix.num_outputs; ++output) {
        octavo::unpack_row(matrix, output, row.data());
        for (int64_t k = 0; k < matrix.num_inputs; ++k)
            REQUIRE(row[static_cast<std::size_t>(k)] == static_cast<float>(weights.at(output, k)));
    }
}

// Every activation is off by half a 127th of its group's largest at most.
void rounding_to_bytes_costs_what_it_must(const ProductKernels &kernels, const Weights &weights) {
    const PackedMatrix &matrix = weights.matrix();
    const std::vector<float> x = random_floats(matrix.num_inputs);
    const std::vector<float> y = multiply(kernels, matrix, x, 0, 1, 1);
    double off = 0;
    for (int64_t output = 0; output < matrix.num_outputs; ++output) {
        double sum = 0, most_off = 1e-12;
        for (int64_t first = 0; first < matrix.num_inputs; first += 32) {
            double most = 0, weight = 0;
            for (int64_t k = first; k < first + 32; ++k) {
                const double value = x[static_cast<std::size_t>(k)];
                sum += weights.at(output, k) * value;
                weight += std::fabs(weights.at(output, k));
                most = std::fmax(most, std::fabs(value));
            }
            most_off += weight * most * (0.5 / 127 + kTolerance);
        }
        const double difference = std::fabs(y[static_cast<std::size_t>(output)] - sum);
        REQUIRE(difference <= most_off);
        off += difference / most_off;
    }
    REQUIRE(off > 0); // it is rounded
}

// Not finite where an input is not; zeros, and what is too small to have a scale, are zeros.
void unusual_activations_are_kept(const ProductKernels &kernels, const PackedMatrix &matrix) {
    std::vector<float> x = random_floats(4 * matrix.num_inputs);
    const auto at = [&](int64_t row, int64_t k) -> float & {
        return x[static_cast<std::size_t>(row * matrix.num_inputs + k)];
    };
    at(0, 3) = NAN;
    at(1, 40) = -INFINITY;
    for (int64_t k = 0; k < matrix.num_inputs; ++k) at(2, k) = k % 2 == 0 ? 1e-40f : -0.0f;
    for (int64_t k = 0; k < matrix.num_inputs; ++k) at(3, k) = k % 3 == 0 ? -2e38f : 2e38f;
    const std::vector<float> y = multiply(kernels, matrix, x, 0, 4, 0);
    for (int64_t output = 0; output < matrix.num_outputs; ++output) {
        const auto row = [&](int64_t index) {
            return y[static_cast<std::size_t>(index * (matrix.num_outputs + 3) + output)];
        };
        REQUIRE(!std::isfinite(row(0)) && !std::isfinite(row(1)));
        REQUIRE(row(2) == 0);
    }
}

void multiplies_quantized_formats(const ProductKernels &kernels) {
    for (const int32_t format : kFormats) {
        if (!octavo::is_quantized(format)) continue;
        for (const Sizes &sizes : sizes_of(format)) {
            const Weights weights(format, sizes.num_outputs, sizes.num_inputs);
            for (int64_t num_rows : {1, 2, 7, 30})
                sums_are_those_of_the_weights(kernels, OCTAVO_PRECISION_INT8, weights, num_rows);
            rounding_to_bytes_costs_what_it_must(kernels, weights);
        }
        const Weights weights(format, 40, 512);
        unusual_activations_are_kept(kernels, weights.matrix());
        a_row_has_the_same_bits_among_any_others(kernels, weights.matrix());
    }
    std::printf("%s, int8: ok\n", kernels.isa);
}

void multiplies_every_format(const ProductKernels &kernels, int32_t precision) {
    for (const int32_t format : kFormats) {
        for (const Sizes &sizes : sizes_of(format)) {
            const Weights weights(format, sizes.num_outputs, sizes.num_inputs);
            for (int64_t num_rows : {1, 2, 7, 30}) sums_are_those_of_the_weights(kernels, precision, weights, num_rows);
        }
        const Weights weights(format, 40, octavo::inputs_per_block(format) == 1 ? 299 : 512);
        a_row_has_the_same_bits_among_any_others(kernels, weights.matrix());
    }
    std::printf("%s, %s: ok\n", kernels.isa, precision == OCTAVO_PRECISION_FLOAT32 ? "float32" : "bfloat16");
}

} // namespace

int main() {
    for (const int32_t format : kFormats)
        for (const Sizes &sizes : sizes_of(format))
            single_rows_are_unpacked_exactly(Weights(format, sizes.num_outputs, sizes.num_inputs));
    multiplies_every_format(octavo::product_kernels_portable, OCTAVO_PRECISION_FLOAT32);
    multiplies_quantized_formats(octavo::product_int8_kernels_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
        multiplies_every_format(octavo::product_kernels_avx2, OCTAVO_PRECISION_FLOAT32);
        multiplies_every_format(octavo::product_kernels_avx512_emulated, OCTAVO_PRECISION_FLOAT32);
        multiplies_every_format(octavo::product_bf16_kernels_avx512_emulated, OCTAVO_PRECISION_BFLOAT16);
        multiplies_every_format(octavo::product_bf16_kernels_amx_emulated, OCTAVO_PRECISION_BFLOAT16);
        multiplies_quantized_formats(octavo::product_int8_kernels_avx2);
        multiplies_quantized_formats(octavo::product_int8_kernels_avx512_emulated);
        multiplies_quantized_formats(octavo::product_int8_kernels_avx512_vnni_emulated);
    }
#endif
}
