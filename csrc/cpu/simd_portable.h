// Floats16 as four vectors of the compiler's own kind: any processor, no fused multiply-add.
#pragma once

namespace octavo {
namespace {

typedef float Quad __attribute__((vector_size(16)));
typedef int32_t QuadInt __attribute__((vector_size(16)));
typedef uint32_t QuadWord __attribute__((vector_size(16)));

struct Floats16 {
    Quad part[4];
};

// Calls f(i) for each of the four parts.
template <class Function> inline Floats16 for_parts(Function f) { return {{f(0), f(1), f(2), f(3)}}; }

inline Quad select(QuadInt mask, Quad a, Quad b) { return (Quad)(((QuadInt)a & mask) | ((QuadInt)b & ~mask)); }

inline Floats16 broadcast(float x) {
    return for_parts([=](int) { return Quad{x, x, x, x}; });
}

inline float widen(float x) { return x; }

inline float widen(bfloat16 x) {
    const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof wide);
    return wide;
}

inline float widen(int8_t x) { return x; }

inline void narrow(float x, float *to) { *to = x; }

// Rounds to nearest even; NaN stays NaN.
inline void narrow(float x, bfloat16 *to) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    to->bits = x != x ? 0x7fc0 : static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class Element> inline Quad load4(const Element *from) {
    return Quad{widen(from[0]), widen(from[1]), widen(from[2]), widen(from[3])};
}

template <class Element> inline Floats16 load(const Element *from) {
    return for_parts([=](int i) { return load4(from + 4 * i); });
}

template <class Element> inline Floats16 load_half(const Element *from) {
    return {{load4(from), load4(from + 4), Quad{}, Quad{}}};
}

template <class Element> inline void store(Element *to, Floats16 x) {
    for (int i = 0; i < 16; ++i) narrow(x.part[i / 4][i % 4], to + i);
}

template <class Element> inline void store_half(Element *to, Floats16 x) {
    for (int i = 0; i < 8; ++i) narrow(x.part[i / 4][i % 4], to + i);
}

// Sixteen words of 32 bits.
struct Words16 {
    QuadInt part[4];
};

template <class Function> inline Words16 words_of_parts(Function f) { return {{f(0), f(1), f(2), f(3)}}; }

inline Words16 load_words(const void *from) {
    Words16 x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

// Eight words, then zeros.
inline Words16 load_half_words(const void *from) {
    Words16 x = {};
    __builtin_memcpy(&x, from, sizeof x / 2);
    return x;
}

inline Words16 keep_bits(Words16 x, uint32_t mask) {
    return words_of_parts([&](int i) { return x.part[i] & static_cast<int32_t>(mask); });
}

inline Words16 shift_left(Words16 x, int count) {
    return words_of_parts([&](int i) { return (QuadInt)((QuadWord)x.part[i] << count); });
}

inline Words16 shift_right(Words16 x, int count) {
    return words_of_parts([&](int i) { return (QuadInt)((QuadWord)x.part[i] >> count); });
}

// Of words below 2^31.
inline Floats16 to_floats(Words16 x) {
    return for_parts([&](int i) { return __builtin_convertvector(x.part[i], Quad); });
}

inline Floats16 as_floats(Words16 x) {
    return for_parts([&](int i) { return (Quad)x.part[i]; });
}

inline Floats16 add(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return a.part[i] + b.part[i]; });
}

inline Floats16 subtract(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return a.part[i] - b.part[i]; });
}

inline Floats16 multiply(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return a.part[i] * b.part[i]; });
}

inline Floats16 divide(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return a.part[i] / b.part[i]; });
}

// a * b + c
inline Floats16 multiply_add(Floats16 a, Floats16 b, Floats16 c) {
    return for_parts([&](int i) { return a.part[i] * b.part[i] + c.part[i]; });
}

// NaN where b is NaN.
inline Floats16 maximum(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return select(a.part[i] > b.part[i], a.part[i], b.part[i]); });
}

// NaN where b is NaN.
inline Floats16 minimum(Floats16 a, Floats16 b) {
    return for_parts([&](int i) { return select(a.part[i] < b.part[i], a.part[i], b.part[i]); });
}

// x in the first `count` lanes, `other` in the rest.
inline Floats16 keep_first(Floats16 x, int count, Floats16 other) {
    return for_parts([&](int i) {
        const QuadInt lanes = QuadInt{0, 1, 2, 3} + 4 * i;
        return select(lanes < count, x.part[i], other.part[i]);
    });
}

// 0 where `tested` < `limit`, else x.
inline Floats16 zero_below(Floats16 x, Floats16 tested, Floats16 limit) {
    return for_parts([&](int i) { return select(tested.part[i] < limit.part[i], Quad{}, x.part[i]); });
}

// Of |x| < 2^22: adding and taking away 1.5 * 2^23 leaves no room for a fraction.
inline Floats16 round_to_nearest(Floats16 x) {
    const float shift = 12582912.0f;
    return for_parts([&](int i) { return (x.part[i] + shift) - shift; });
}

// 2^n of whole numbers in -126..127
inline Floats16 power_of_two(Floats16 n) {
    return for_parts([&](int i) { return (Quad)((__builtin_convertvector(n.part[i], QuadInt) + 127) << 23); });
}

// Adds lane i + 8 to lane i: eight partial sums.
inline void store_folded(float *to, Floats16 x) {
    const Quad low = x.part[0] + x.part[2], high = x.part[1] + x.part[3];
    __builtin_memcpy(to, &low, sizeof low);
    __builtin_memcpy(to + 4, &high, sizeof high);
}

inline float sum4(Quad x) { return (x[0] + x[2]) + (x[1] + x[3]); }

// Sums of eight rows of eight.
inline void sum_rows(const float (*rows)[8], float *sums) {
    for (int i = 0; i < 8; ++i) sums[i] = sum4(load4(rows[i]) + load4(rows[i] + 4));
}

inline float sum(Floats16 x) { return sum4((x.part[0] + x.part[2]) + (x.part[1] + x.part[3])); }

inline float largest(Floats16 x) {
    float result = x.part[0][0];
    for (int i = 1; i < 16; ++i) result = x.part[i / 4][i % 4] > result ? x.part[i / 4][i % 4] : result;
    return result;
}

} // namespace
} // namespace octavo
