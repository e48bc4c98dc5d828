// The AVX-512 intrinsics that simd_avx512.h uses, lane by lane after Intel's description of them, so that its logic is
// tested on machines without AVX-512. Included before the kernel source; pretends that the set is there.
#pragma once

#include <immintrin.h>

#include <cstdint>

#undef __AVX512F__
#define __AVX512F__ 1

namespace emulated {
namespace {

typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint16_t Halves __attribute__((vector_size(32)));
typedef uint16_t Shorts __attribute__((vector_size(64)));
typedef int8_t SignedBytes __attribute__((vector_size(16)));

template <class Function> inline __m512 floats(Function f) {
    __m512 x;
    for (int i = 0; i < 16; ++i) x[i] = f(i);
    return x;
}

template <class Function> inline __m512i ints(Function f) {
    Ints x;
    for (int i = 0; i < 16; ++i) x[i] = static_cast<int32_t>(f(i));
    return (__m512i)x;
}

inline __m512 set1(float x) {
    return floats([=](int) { return x; });
}
inline __m512i set1_int(int32_t x) {
    return ints([=](int) { return x; });
}
inline __m512 add(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] + b[i]; });
}
inline __m512 subtract(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] - b[i]; });
}
inline __m512 multiply(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] * b[i]; });
}
inline __m512 divide(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] / b[i]; });
}
inline __m512 fused(__m512 a, __m512 b, __m512 c) {
    return floats([=](int i) { return __builtin_fmaf(a[i], b[i], c[i]); });
}
inline __m512 maximum(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] > b[i] ? a[i] : b[i]; });
}
inline __m512 minimum(__m512 a, __m512 b) {
    return floats([=](int i) { return a[i] < b[i] ? a[i] : b[i]; });
}
inline __m512i add_ints(__m512i a, __m512i b) {
    return ints([=](int i) { return ((Words)a)[i] + ((Words)b)[i]; });
}
inline __m512i shift_left(__m512i a, int n) {
    return ints([=](int i) { return ((Words)a)[i] << n; });
}
inline __m512i shift_right(__m512i a, int n) {
    return ints([=](int i) { return ((Words)a)[i] >> n; });
}
inline __m512i widen16(__m256i a) {
    return ints([=](int i) { return ((Halves)a)[i]; });
}
inline __m256i truncate16(__m512i a) {
    Halves x;
    for (int i = 0; i < 16; ++i) x[i] = static_cast<uint16_t>(((Words)a)[i]);
    return (__m256i)x;
}
inline __m512 widen_half(__m256i a) {
    return floats([=](int i) { return _cvtsh_ss(((Halves)a)[i]); });
}
inline __m512i subtract_ints(__m512i a, __m512i b) {
    return ints([=](int i) { return ((Words)a)[i] - ((Words)b)[i]; });
}
inline __m512 to_floats(__m512i a) {
    return floats([=](int i) { return static_cast<float>(((Ints)a)[i]); });
}
inline __m512i widen8(__m128i a) {
    return ints([=](int i) { return ((SignedBytes)a)[i]; });
}
inline __m512i load_ints(const void *from) {
    __m512i x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}
inline void store_ints(void *to, __m512i x) { __builtin_memcpy(to, &x, sizeof x); }
inline __m512i permute16(__m512i index, __m512i a) {
    Shorts x;
    for (int i = 0; i < 32; ++i) x[i] = ((Shorts)a)[((Shorts)index)[i] & 31];
    return (__m512i)x;
}

// ---------------------------------------------------------------- bytes

template <class Function> inline __m512i halves(Function f) {
    Shorts x;
    for (int i = 0; i < 32; ++i) x[i] = static_cast<uint16_t>(f(i));
    return (__m512i)x;
}
inline int32_t half(__m512i a, int i) { return static_cast<int16_t>(((Shorts)a)[i]); }
inline int32_t byte_product(__m512i weights, __m512i x, int i) {
    return ((const uint8_t *)&weights)[i] * ((const int8_t *)&x)[i];
}
inline __m512i add_halves(__m512i a, __m512i b) {
    return halves([=](int i) { return half(a, i) + half(b, i); });
}
inline __m512i multiply_bytes(__m512i weights, __m512i x) {
    return halves([=](int i) {
        const int32_t sum = byte_product(weights, x, 2 * i) + byte_product(weights, x, 2 * i + 1);
        return sum > INT16_MAX ? INT16_MAX : sum < INT16_MIN ? INT16_MIN : sum;
    });
}
inline __m512i multiply_halves(__m512i a, __m512i b) {
    return ints([=](int i) { return half(a, 2 * i) * half(b, 2 * i) + half(a, 2 * i + 1) * half(b, 2 * i + 1); });
}
inline __m512i add_byte_dots(__m512i sums, __m512i weights, __m512i x) {
    return ints([=](int i) {
        int32_t sum = ((Ints)sums)[i];
        for (int byte = 4 * i; byte < 4 * i + 4; ++byte) sum += byte_product(weights, x, byte);
        return sum;
    });
}

// ---------------------------------------------------------------- bfloat16

inline uint16_t round_to_bfloat16(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fc0;
    if ((bits & 0x7f800000) == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000); // subnormals are zeros
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline float widen_bfloat16(uint16_t x) {
    const uint32_t bits = uint32_t{x} << 16;
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof wide);
    return wide;
}
inline __m512bh round_both(__m512 high, __m512 low) {
    Shorts x;
    for (int i = 0; i < 32; ++i) x[i] = round_to_bfloat16(i < 16 ? low[i] : high[i - 16]);
    return (__m512bh)x;
}
inline __m512 dot_pairs(__m512 sums, __m512bh a, __m512bh b) {
    return floats([=](int i) {
        const auto value = [i](__m512bh x, int which) { return widen_bfloat16(((Shorts)x)[2 * i + which]); };
        return __builtin_fmaf(value(a, 0), value(b, 0), __builtin_fmaf(value(a, 1), value(b, 1), sums[i]));
    });
}

// ---------------------------------------------------------------- masks

inline __mmask16 compare(__m512 a, __m512 b, int predicate) {
    unsigned mask = 0;
    for (int i = 0; i < 16; ++i) {
        const bool unordered = a[i] != a[i] || b[i] != b[i];
        mask |= unsigned{predicate == _CMP_UNORD_Q ? unordered : !(a[i] < b[i])} << i;
    }
    return static_cast<__mmask16>(mask);
}
// b where the mask is set, else a
inline __m512 blend(__mmask16 mask, __m512 a, __m512 b) {
    return floats([=](int i) { return mask >> i & 1 ? b[i] : a[i]; });
}
inline __m512i blend_ints(__mmask16 mask, __m512i a, __m512i b) {
    return ints([=](int i) { return mask >> i & 1 ? ((Ints)b)[i] : ((Ints)a)[i]; });
}
inline __m512 load(__mmask16 mask, const void *from) {
    return floats([=](int i) { return mask >> i & 1 ? static_cast<const float *>(from)[i] : 0.0f; });
}
inline void store(void *to, __mmask16 mask, __m512 x) {
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) static_cast<float *>(to)[i] = x[i];
}
inline __m256i load16(__mmask16 mask, const void *from) {
    Halves x = {};
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) __builtin_memcpy((char *)&x + 2 * i, static_cast<const char *>(from) + 2 * i, 2);
    return (__m256i)x;
}
inline void store16(void *to, __mmask16 mask, __m256i x) {
    for (int i = 0; i < 16; ++i)
        if (mask >> i & 1) __builtin_memcpy(static_cast<char *>(to) + 2 * i, (const char *)&x + 2 * i, 2);
}
inline __m512 round_even(__m512 a) {
    return floats([=](int i) { return __builtin_rintf(a[i]); });
}
inline __m512i to_ints(__m512 a) {
    return ints([=](int i) { return a[i] == a[i] ? static_cast<int64_t>(__builtin_rintf(a[i])) : INT32_MIN; });
}
inline __m256 part8(__m512 a, int part) {
    return _mm256_setr_ps(a[8 * part], a[8 * part + 1], a[8 * part + 2], a[8 * part + 3], a[8 * part + 4],
                          a[8 * part + 5], a[8 * part + 6], a[8 * part + 7]);
}
inline float largest(__m512 a) {
    float x = a[0];
    for (int i = 1; i < 16; ++i) x = a[i] > x ? a[i] : x;
    return x;
}

} // namespace
} // namespace emulated

#define _mm512_set1_ps emulated::set1
#define _mm512_set1_epi32 emulated::set1_int
#define _mm512_castsi512_ps(x) ((__m512)(x))
#define _mm512_castps_si512(x) ((__m512i)(x))
#define _mm512_add_ps emulated::add
#define _mm512_sub_ps emulated::subtract
#define _mm512_mul_ps emulated::multiply
#define _mm512_div_ps emulated::divide
#define _mm512_fmadd_ps emulated::fused
#define _mm512_max_ps emulated::maximum
#define _mm512_min_ps emulated::minimum
#define _mm512_add_epi32 emulated::add_ints
#define _mm512_sub_epi32 emulated::subtract_ints
#define _mm512_add_epi16 emulated::add_halves
#define _mm512_maddubs_epi16 emulated::multiply_bytes
#define _mm512_madd_epi16 emulated::multiply_halves
#define _mm512_dpbusd_epi32 emulated::add_byte_dots
#define _mm512_or_si512(a, b) ((a) | (b))
#define _mm512_loadu_si512 emulated::load_ints
#define _mm512_storeu_si512 emulated::store_ints
#define _mm512_permutexvar_epi16 emulated::permute16
#define _mm512_cvtne2ps_pbh emulated::round_both
#define _mm512_dpbf16_ps emulated::dot_pairs
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps emulated::widen_half
#define _mm512_cvtepi32_ps emulated::to_floats
#define _mm512_cvtepi8_epi32 emulated::widen8
#define _mm512_and_si512(a, b) ((a) & (b))
#define _mm512_slli_epi32 emulated::shift_left
#define _mm512_srli_epi32 emulated::shift_right
#define _mm512_cvtepu16_epi32 emulated::widen16
#define _mm512_cvtepi32_epi16 emulated::truncate16
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask emulated::compare
#define _mm512_mask_blend_ps emulated::blend
#define _mm512_mask_blend_epi32 emulated::blend_ints
#define _mm512_maskz_mov_ps(mask, x) emulated::blend(mask, emulated::set1(0.0f), x)
#define _mm512_loadu_ps(from) emulated::load(0xffff, from)
#define _mm512_maskz_loadu_ps emulated::load
#define _mm512_storeu_ps(to, x) emulated::store(to, 0xffff, x)
#define _mm512_mask_storeu_ps emulated::store
#define _mm256_maskz_loadu_epi16 emulated::load16
#define _mm256_mask_storeu_epi16 emulated::store16
#undef _mm512_roundscale_ps
#define _mm512_roundscale_ps(x, mode) emulated::round_even(x)
#define _mm512_cvtps_epi32 emulated::to_ints
#define _mm512_castps512_ps256(x) emulated::part8(x, 0)
#undef _mm512_extractf32x8_ps
#define _mm512_extractf32x8_ps emulated::part8
#define _mm512_reduce_max_ps emulated::largest
