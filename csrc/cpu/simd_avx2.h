// Floats16 as two AVX registers.
#pragma once

#include <immintrin.h>

namespace octavo {
namespace {

struct Floats16 {
    __m256 low, high;
};

inline Floats16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

inline __m256 load8(const float *from) { return _mm256_loadu_ps(from); }

inline __m256 load8(const bfloat16 *from) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

inline __m256 load8(const float16 *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}

inline __m256 load8(const int8_t *from) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(from))));
}

inline void store8(float *to, __m256 x) { _mm256_storeu_ps(to, x); }

// Rounds to nearest even; NaN stays NaN.
inline void store8(bfloat16 *to, __m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), packed);
}

template <class Element> inline Floats16 load(const Element *from) { return {load8(from), load8(from + 8)}; }

template <class Element> inline Floats16 load_half(const Element *from) { return {load8(from), _mm256_setzero_ps()}; }

template <class Element> inline void store(Element *to, Floats16 x) {
    store8(to, x.low);
    store8(to + 8, x.high);
}

template <class Element> inline void store_half(Element *to, Floats16 x) { store8(to, x.low); }

// Sixteen words of 32 bits.
struct Words16 {
    __m256i low, high;
};

inline Words16 load_words(const void *from) {
    const __m256i *words = static_cast<const __m256i *>(from);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
}

// Eight words, then zeros.
inline Words16 load_half_words(const void *from) {
    return {_mm256_loadu_si256(static_cast<const __m256i *>(from)), _mm256_setzero_si256()};
}

inline Words16 keep_bits(Words16 x, uint32_t mask) {
    const __m256i bits = _mm256_set1_epi32(static_cast<int32_t>(mask));
    return {_mm256_and_si256(x.low, bits), _mm256_and_si256(x.high, bits)};
}

inline Words16 shift_left(Words16 x, int count) {
    return {_mm256_slli_epi32(x.low, count), _mm256_slli_epi32(x.high, count)};
}

inline Words16 shift_right(Words16 x, int count) {
    return {_mm256_srli_epi32(x.low, count), _mm256_srli_epi32(x.high, count)};
}

// Of words below 2^31.
inline Floats16 to_floats(Words16 x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }

inline Floats16 as_floats(Words16 x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }

inline Floats16 add(Floats16 a, Floats16 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }

inline Floats16 subtract(Floats16 a, Floats16 b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

inline Floats16 multiply(Floats16 a, Floats16 b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

inline Floats16 divide(Floats16 a, Floats16 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }

// a * b + c
inline Floats16 multiply_add(Floats16 a, Floats16 b, Floats16 c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

// NaN where b is NaN.
inline Floats16 maximum(Floats16 a, Floats16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }

// NaN where b is NaN.
inline Floats16 minimum(Floats16 a, Floats16 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }

// x in the first `count` lanes, `other` in the rest.
inline Floats16 keep_first(Floats16 x, int count, Floats16 other) {
    const __m256i limit = _mm256_set1_epi32(count);
    const __m256i low = _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    const __m256i high = _mm256_cmpgt_epi32(limit, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15));
    return {_mm256_blendv_ps(other.low, x.low, _mm256_castsi256_ps(low)),
            _mm256_blendv_ps(other.high, x.high, _mm256_castsi256_ps(high))};
}

// 0 where `tested` < `limit`, else x.
inline Floats16 zero_below(Floats16 x, Floats16 tested, Floats16 limit) {
    return {_mm256_andnot_ps(_mm256_cmp_ps(tested.low, limit.low, _CMP_LT_OQ), x.low),
            _mm256_andnot_ps(_mm256_cmp_ps(tested.high, limit.high, _CMP_LT_OQ), x.high)};
}

inline Floats16 round_to_nearest(Floats16 x) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kMode), _mm256_round_ps(x.high, kMode)};
}

inline __m256 power_of_two8(__m256 n) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}

// 2^n of whole numbers in -126..127
inline Floats16 power_of_two(Floats16 n) { return {power_of_two8(n.low), power_of_two8(n.high)}; }

// Adds lane i + 8 to lane i: eight partial sums.
inline void store_folded(float *to, Floats16 x) { store8(to, _mm256_add_ps(x.low, x.high)); }

// Sums of eight rows of eight.
inline void sum_rows(const float (*rows)[8], float *sums) {
    const __m256 ab = _mm256_hadd_ps(load8(rows[0]), load8(rows[1]));
    const __m256 cd = _mm256_hadd_ps(load8(rows[2]), load8(rows[3]));
    const __m256 ef = _mm256_hadd_ps(load8(rows[4]), load8(rows[5]));
    const __m256 gh = _mm256_hadd_ps(load8(rows[6]), load8(rows[7]));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    const __m256 efgh = _mm256_hadd_ps(ef, gh);
    store8(sums, _mm256_add_ps(_mm256_permute2f128_ps(abcd, efgh, 0x20), _mm256_permute2f128_ps(abcd, efgh, 0x31)));
}

inline float sum(Floats16 x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float largest(Floats16 x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

} // namespace
} // namespace octavo
