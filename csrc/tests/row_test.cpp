// Norms, rotary and activations of every instruction set against float64; AVX-512 in emulation.
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "octavo.h"
#include "require.h"
#include "row_kernel.h"

namespace octavo {
extern const RowKernels row_kernels_avx512_emulated;
}

namespace {

using Row = std::vector<float>;

constexpr int64_t kSizes[] = {8, 16, 24, 64, 72, 576, 1000};

Row normal(int64_t size, float deviation, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(0, deviation);
    Row row(size);
    for (float &x : row) x = distribution(random);
    return row;
}

bool near(double actual, double expected, double tolerance) {
    return std::fabs(actual - expected) <= tolerance * (1 + std::fabs(expected));
}

void require_near(const Row &actual, const std::function<double(int64_t)> &expected, double tolerance) {
    for (size_t i = 0; i < actual.size(); ++i) REQUIRE(near(actual[i], expected(i), tolerance));
}

double mean_of(int64_t size, const std::function<double(int64_t)> &term) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += term(i);
    return sum / size;
}

void norms(const octavo::RowKernels &kernels, int64_t size) {
    Row row = normal(size, 2, 1), out(size);
    for (float &x : row) x += 5; // a mean far from 0
    const Row weight = normal(size, 1, 2), bias = normal(size, 1, 3);
    const double square = mean_of(size, [&](int64_t i) { return double{row[i]} * row[i]; });
    kernels.rms_norm(row.data(), weight.data(), size, 0.5f, out.data());
    require_near(out, [&](int64_t i) { return row[i] / std::sqrt(square + 0.5) * weight[i]; }, 1e-6);

    const double mean = mean_of(size, [&](int64_t i) { return row[i]; });
    const double variance = mean_of(size, [&](int64_t i) { return (row[i] - mean) * (row[i] - mean); });
    const auto normed = [&](int64_t i) { return (row[i] - mean) / std::sqrt(variance + 0.5) * weight[i]; };
    kernels.layer_norm(row.data(), weight.data(), nullptr, size, 0.5f, out.data());
    require_near(out, normed, 1e-6);
    kernels.layer_norm(row.data(), weight.data(), bias.data(), size, 0.5f, row.data()); // in place
    const Row in_place = row;
    require_near(in_place, [&](int64_t i) { return double{out[i]} + bias[i]; }, 1e-6);
}

void rotary(const octavo::RowKernels &kernels, int head_size) {
    const int half = head_size / 2;
    const Row before = normal(3 * head_size, 1, 4), cosines = normal(half, 1, 5), sines = normal(half, 1, 6);
    Row heads = before;
    kernels.rotate(heads.data(), 3, head_size, cosines.data(), sines.data());
    require_near(
        heads,
        [&](int64_t i) {
            const int64_t channel = i % head_size, pair = channel % half;
            const double other = channel < half ? -double{before[i + half]} : double{before[i - half]};
            return double{before[i]} * cosines[pair] + other * sines[pair];
        },
        1e-6);
}

void activations(const octavo::RowKernels &kernels, int64_t size) {
    Row row = normal(size, 4, 7), out(size);
    row[0] = -0.0f;
    row[1] = -200;
    row[2] = 200;
    row[3] = -3.4e38f;
    const Row up = normal(size, 1, 8);
    kernels.silu_mul(row.data(), up.data(), size, out.data());
    require_near(out, [&](int64_t i) { return row[i] / (1 + std::exp(-double{row[i]})) * up[i]; }, 1e-6);
    kernels.gelu(row.data(), size, out.data());
    require_near(out, [&](int64_t i) { return 0.5 * row[i] * std::erfc(-row[i] * std::sqrt(0.5)); }, 1e-6);
    row[3] = -1e10f; // whose cube is finite
    kernels.gelu_tanh(row.data(), size, out.data());
    const double factor = std::sqrt(8 / std::acos(-1.0));
    require_near(
        out,
        [&](int64_t i) {
            const double x = row[i];
            return x / (1 + std::exp(-factor * (x + 0.044715 * x * x * x)));
        },
        1e-6);
}

void additions_and_types(const octavo::RowKernels &kernels, int64_t size) {
    const Row row = normal(size, 1, 9), before = normal(size, 1, 10);
    Row sum = before;
    kernels.add(row.data(), size, sum.data());
    for (int64_t i = 0; i < size; ++i) REQUIRE(sum[i] == before[i] + row[i]);
    std::vector<uint16_t> halves(size);
    kernels.narrow(row.data(), size, OCTAVO_BFLOAT16, halves.data());
    Row wide(size);
    kernels.widen(halves.data(), OCTAVO_BFLOAT16, size, wide.data());
    for (int64_t i = 0; i < size; ++i) REQUIRE(std::fabs(wide[i] - row[i]) <= std::fabs(row[i]) / 256);
    kernels.narrow(row.data(), size, OCTAVO_FLOAT32, wide.data());
    REQUIRE(wide == row);
}

// What lies past the end is neither read nor written.
void rows_end_where_they_end(const octavo::RowKernels &kernels) {
    Row row = normal(48, 1, 11), out(48, 7.0f);
    const Row weight = normal(48, 1, 12);
    kernels.rms_norm(row.data(), weight.data(), 24, 0, out.data());
    const Row first(out.begin(), out.begin() + 24);
    for (int i = 24; i < 48; ++i) row[i] = std::numeric_limits<float>::quiet_NaN();
    kernels.rms_norm(row.data(), weight.data(), 24, 0, out.data());
    REQUIRE(std::equal(first.begin(), first.end(), out.begin()));
    for (int i = 24; i < 48; ++i) REQUIRE(out[i] == 7.0f);
}

void rows_are_those_of_float64(const octavo::RowKernels &kernels) {
    for (const int64_t size : kSizes) {
        norms(kernels, size);
        activations(kernels, size);
        additions_and_types(kernels, size);
    }
    for (const int head_size : {16, 64, 80, 96, 128}) rotary(kernels, head_size);
    rows_end_where_they_end(kernels);
}

} // namespace

int main() {
    rows_are_those_of_float64(octavo::row_kernels_portable);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        rows_are_those_of_float64(octavo::row_kernels_avx2);
        rows_are_those_of_float64(octavo::row_kernels_avx512_emulated);
    }
#endif
}
