// Floats16 as one AVX-512 register (F, VL, BW, DQ).
#pragma once

#include <immintrin.h>

namespace octavo {
namespace {

struct Floats16 {
    __m512 all;
};

inline Floats16 broadcast(float x) { return {_mm512_set1_ps(x)}; }

inline __m512 widen(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }

// Rounds to nearest even; NaN stays NaN.
inline __m256i narrow(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_blend_epi32(nan, rounded, _mm512_set1_epi32(0x7fc00000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
}

inline Floats16 load(const float *from) { return {_mm512_loadu_ps(from)}; }

inline Floats16 load(const bfloat16 *from) {
    return {widen(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)))};
}

inline Floats16 load(const float16 *from) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)))};
}

inline Floats16 load(const int8_t *from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from))))};
}

inline Floats16 load_half(const float *from) { return {_mm512_maskz_loadu_ps(0x00ff, from)}; }

inline Floats16 load_half(const bfloat16 *from) { return {widen(_mm256_maskz_loadu_epi16(0x00ff, from))}; }

inline void store(float *to, Floats16 x) { _mm512_storeu_ps(to, x.all); }

inline void store(bfloat16 *to, Floats16 x) { _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), narrow(x.all)); }

inline void store_half(float *to, Floats16 x) { _mm512_mask_storeu_ps(to, 0x00ff, x.all); }

inline void store_half(bfloat16 *to, Floats16 x) { _mm256_mask_storeu_epi16(to, 0x00ff, narrow(x.all)); }

// Sixteen words of 32 bits.
struct Words16 {
    __m512i all;
};

inline Words16 load_words(const void *from) { return {_mm512_loadu_si512(from)}; }

// Eight words, then zeros.
inline Words16 load_half_words(const void *from) { return {_mm512_castps_si512(_mm512_maskz_loadu_ps(0x00ff, from))}; }

inline Words16 keep_bits(Words16 x, uint32_t mask) {
    return {_mm512_and_si512(x.all, _mm512_set1_epi32(static_cast<int32_t>(mask)))};
}

inline Words16 shift_left(Words16 x, int count) { return {_mm512_slli_epi32(x.all, static_cast<unsigned>(count))}; }

inline Words16 shift_right(Words16 x, int count) { return {_mm512_srli_epi32(x.all, static_cast<unsigned>(count))}; }

// Of words below 2^31.
inline Floats16 to_floats(Words16 x) { return {_mm512_cvtepi32_ps(x.all)}; }

inline Floats16 as_floats(Words16 x) { return {_mm512_castsi512_ps(x.all)}; }

inline Floats16 add(Floats16 a, Floats16 b) { return {_mm512_add_ps(a.all, b.all)}; }

inline Floats16 subtract(Floats16 a, Floats16 b) { return {_mm512_sub_ps(a.all, b.all)}; }

inline Floats16 multiply(Floats16 a, Floats16 b) { return {_mm512_mul_ps(a.all, b.all)}; }

inline Floats16 divide(Floats16 a, Floats16 b) { return {_mm512_div_ps(a.all, b.all)}; }

// a * b + c
inline Floats16 multiply_add(Floats16 a, Floats16 b, Floats16 c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }

// NaN where b is NaN.
inline Floats16 maximum(Floats16 a, Floats16 b) { return {_mm512_max_ps(a.all, b.all)}; }

// NaN where b is NaN.
inline Floats16 minimum(Floats16 a, Floats16 b) { return {_mm512_min_ps(a.all, b.all)}; }

// x in the first `count` lanes, `other` in the rest.
inline Floats16 keep_first(Floats16 x, int count, Floats16 other) {
    const int clamped = count < 0 ? 0 : count > 16 ? 16 : count;
    return {_mm512_mask_blend_ps(static_cast<__mmask16>((1u << clamped) - 1), other.all, x.all)};
}

// 0 where `tested` < `limit`, else x.
inline Floats16 zero_below(Floats16 x, Floats16 tested, Floats16 limit) {
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(tested.all, limit.all, _CMP_NLT_UQ), x.all)};
}

inline Floats16 round_to_nearest(Floats16 x) {
    return {_mm512_roundscale_ps(x.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

// 2^n of whole numbers in -126..127
inline Floats16 power_of_two(Floats16 n) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(n.all), _mm512_set1_epi32(127));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(biased, 23))};
}

inline __m256 fold(__m512 x) { return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1)); }

// Adds lane i + 8 to lane i: eight partial sums.
inline void store_folded(float *to, Floats16 x) { _mm256_storeu_ps(to, fold(x.all)); }

// Sums of eight rows of eight.
inline void sum_rows(const float (*rows)[8], float *sums) {
    const __m256 ab = _mm256_hadd_ps(_mm256_loadu_ps(rows[0]), _mm256_loadu_ps(rows[1]));
    const __m256 cd = _mm256_hadd_ps(_mm256_loadu_ps(rows[2]), _mm256_loadu_ps(rows[3]));
    const __m256 ef = _mm256_hadd_ps(_mm256_loadu_ps(rows[4]), _mm256_loadu_ps(rows[5]));
    const __m256 gh = _mm256_hadd_ps(_mm256_loadu_ps(rows[6]), _mm256_loadu_ps(rows[7]));
    const __m256 abcd = _mm256_hadd_ps(ab, cd);
    const __m256 efgh = _mm256_hadd_ps(ef, gh);
    const __m256 low = _mm256_permute2f128_ps(abcd, efgh, 0x20);
    _mm256_storeu_ps(sums, _mm256_add_ps(low, _mm256_permute2f128_ps(abcd, efgh, 0x31)));
}

inline float sum(Floats16 x) {
    const __m256 eight = fold(x.all);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline float largest(Floats16 x) { return _mm512_reduce_max_ps(x.all); }

} // namespace
} // namespace octavo
