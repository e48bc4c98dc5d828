// Norms, rotary and activations of one row.
//
// Compiled once per instruction set; OCTAVO_KERNELS names the table. Holds no inline std:: code (attention_kernel.h).
#include "row_kernel.h"

#include "exponential.h"
#include "octavo.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr int kLanes = 16;

// Visits a row sixteen elements at a time, and the eight that may be left.
template <class Whole, class Half> inline void each_pack(int64_t size, Whole whole, Half half) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) whole(i);
    if (i < size) half(i);
}

// out[i] = function(row[i]...)
template <class Function, class... Rows>
inline void map(Function function, int64_t size, float *out, const Rows *...rows) {
    each_pack(
        size, [&](int64_t i) { store(out + i, function(load(rows + i)...)); },
        [&](int64_t i) { store_half(out + i, function(load_half(rows + i)...)); });
}

// ---------------------------------------------------------------- types

template <class From, class To> void convert(const From *row, int64_t size, To *out) {
    each_pack(
        size, [&](int64_t i) { store(out + i, load(row + i)); },
        [&](int64_t i) { store_half(out + i, load_half(row + i)); });
}

void widen(const void *row, int dtype, int64_t size, float *out) {
    if (dtype == OCTAVO_BFLOAT16) return convert(static_cast<const bfloat16 *>(row), size, out);
    convert(static_cast<const float *>(row), size, out);
}

void narrow(const float *row, int64_t size, int dtype, void *out) {
    if (dtype == OCTAVO_BFLOAT16) return convert(row, size, static_cast<bfloat16 *>(out));
    convert(row, size, static_cast<float *>(out));
}

// ---------------------------------------------------------------- norms

constexpr int kSums = 4; // independent ones, which hide the latency of an addition

// Folds row[i] into partial sums by term(row[i], partial), which are then added up.
template <class Term> inline float sum_of(const float *row, int64_t size, Term term) {
    Floats16 sums[kSums];
    for (Floats16 &partial : sums) partial = broadcast(0.0f);
    int64_t i = 0;
    for (; i + kSums * kLanes <= size; i += kSums * kLanes)
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) sums[s] = term(load(row + i + s * kLanes), sums[s]);
    for (; i + kLanes <= size; i += kLanes) sums[0] = term(load(row + i), sums[0]);
    if (i < size) sums[1] = keep_first(term(load_half(row + i), sums[1]), kLanes / 2, sums[1]);
    return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

inline float reciprocal_deviation(float square_sum, int64_t size, float epsilon) {
    return 1.0f / __builtin_sqrtf(square_sum / static_cast<float>(size) + epsilon);
}

void rms_norm(const float *row, const float *weight, int64_t size, float epsilon, float *out) {
    const float squares = sum_of(row, size, [](Floats16 x, Floats16 partial) { return multiply_add(x, x, partial); });
    const Floats16 scale = broadcast(reciprocal_deviation(squares, size, epsilon));
    map([=](Floats16 x, Floats16 w) { return multiply(multiply(x, scale), w); }, size, out, row, weight);
}

void layer_norm(const float *row, const float *weight, const float *bias, int64_t size, float epsilon, float *out) {
    const float total = sum_of(row, size, [](Floats16 x, Floats16 partial) { return add(partial, x); });
    const Floats16 mean = broadcast(total / static_cast<float>(size));
    const float squares = sum_of(row, size, [=](Floats16 x, Floats16 partial) {
        const Floats16 centered = subtract(x, mean);
        return multiply_add(centered, centered, partial);
    });
    const Floats16 scale = broadcast(reciprocal_deviation(squares, size, epsilon));
    const auto scaled = [=](Floats16 x, Floats16 w) { return multiply(multiply(subtract(x, mean), scale), w); };
    if (bias == nullptr) return map(scaled, size, out, row, weight);
    map([=](Floats16 x, Floats16 w, Floats16 b) { return add(scaled(x, w), b); }, size, out, row, weight, bias);
}

void add_rows(const float *row, int64_t size, float *sum) {
    map([](Floats16 a, Floats16 b) { return add(a, b); }, size, sum, sum, row);
}

// ---------------------------------------------------------------- rotary

struct Turned {
    Floats16 first, second;
};

inline Turned turn(Floats16 x, Floats16 y, Floats16 cosine, Floats16 sine) {
    return {subtract(multiply(x, cosine), multiply(y, sine)), add(multiply(y, cosine), multiply(x, sine))};
}

void rotate_head(float *head, int half_size, const float *cosines, const float *sines) {
    float *partner = head + half_size;
    each_pack(
        half_size,
        [&](int64_t i) {
            const Turned pair = turn(load(head + i), load(partner + i), load(cosines + i), load(sines + i));
            store(head + i, pair.first);
            store(partner + i, pair.second);
        },
        [&](int64_t i) {
            const Turned pair =
                turn(load_half(head + i), load_half(partner + i), load_half(cosines + i), load_half(sines + i));
            store_half(head + i, pair.first);
            store_half(partner + i, pair.second);
        });
}

void rotate(float *heads, int num_heads, int head_size, const float *cosines, const float *sines) {
    for (int head = 0; head < num_heads; ++head)
        rotate_head(heads + int64_t{head} * head_size, head_size / 2, cosines, sines);
}

// ---------------------------------------------------------------- activations

inline Floats16 negated(Floats16 x) { return subtract(broadcast(0.0f), x); }

// x / (1 + exp(-gate)), 0 where exp(-gate) would overflow.
inline Floats16 gated(Floats16 x, Floats16 gate) {
    const Floats16 largest_exponent = broadcast(88.0f);
    const Floats16 divisor = add(broadcast(1.0f), exponential(minimum(largest_exponent, negated(gate))));
    return divide(zero_below(x, gate, negated(largest_exponent)), divisor);
}

void silu_mul(const float *gate, const float *up, int64_t size, float *out) {
    map([](Floats16 g, Floats16 u) { return multiply(gated(g, g), u); }, size, out, gate, up);
}

// erf(z) of z >= 0 (Abramowitz and Stegun, 7.1.26): absolute error below 1.5e-7, and float32's roundings.
inline Floats16 error_function(Floats16 z) {
    const Floats16 one = broadcast(1.0f);
    const Floats16 t = divide(one, multiply_add(z, broadcast(0.3275911f), one));
    Floats16 p = broadcast(1.061405429f);
    p = multiply_add(p, t, broadcast(-1.453152027f));
    p = multiply_add(p, t, broadcast(1.421413741f));
    p = multiply_add(p, t, broadcast(-0.284496736f));
    p = multiply_add(p, t, broadcast(0.254829592f));
    return subtract(one, multiply(multiply(p, t), exponential(negated(multiply(z, z)))));
}

// x * erf(x / √2) is |x| * erf(|x| / √2).
void gelu(const float *row, int64_t size, float *out) {
    const auto function = [](Floats16 x) {
        const Floats16 size_of_x = maximum(negated(x), x);
        const Floats16 erf = error_function(multiply(size_of_x, broadcast(0.70710678118654752f)));
        return multiply(broadcast(0.5f), multiply_add(size_of_x, erf, x));
    };
    map(function, size, out, row);
}

// (1 + tanh(u)) / 2 is 1 / (1 + exp(-2u)).
void gelu_tanh(const float *row, int64_t size, float *out) {
    const auto function = [](Floats16 x) {
        const Floats16 cubed = multiply(multiply(x, x), x);
        const Floats16 u = multiply_add(cubed, broadcast(0.044715f), x);
        return gated(x, multiply(u, broadcast(2 * 0.79788456080286536f)));
    };
    map(function, size, out, row);
}

} // namespace

extern const RowKernels OCTAVO_KERNELS; // or the constant would be this unit's own
const RowKernels OCTAVO_KERNELS = {widen, narrow, add_rows, rms_norm, layer_norm, rotate, silu_mul, gelu, gelu_tanh};

} // namespace octavo
