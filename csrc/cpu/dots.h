// Integer dot products of bytes: four of a lane's word at a time, exact. Included by kernels only.
//
// Activations are signed bytes of -127 to 127. `small` dots take unsigned weights of at most 15 and may be added eight
// times; without VNNI they are pairs of 16 bits until the end: 8 * 2 * 15 * 127 fits.
#pragma once

#include "simd.h"

namespace octavo {
namespace {

#if defined(__AVX512F__)

inline Words16 broadcast_word(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline Words16 add_words(Words16 a, Words16 b) { return {_mm512_add_epi32(a.all, b.all)}; }
inline Words16 subtract_words(Words16 a, Words16 b) { return {_mm512_sub_epi32(a.all, b.all)}; }
inline Words16 either_bits(Words16 a, Words16 b) { return {_mm512_or_si512(a.all, b.all)}; }

// Of signed halves of words: a.low * b.low + a.high * b.high
inline Words16 multiply_pairs(Words16 a, Words16 b) { return {_mm512_madd_epi16(a.all, b.all)}; }

// Signed halves of words: two products each, of unsigned and signed bytes; below 2^15 or they saturate.
inline Words16 byte_pairs(Words16 weights, Words16 x) { return {_mm512_maddubs_epi16(weights.all, x.all)}; }
inline Words16 add_pairs(Words16 a, Words16 b) { return {_mm512_add_epi16(a.all, b.all)}; }

// low[i] and high[i], widened, are the halves of word i.
inline Words16 load_pairs(const int8_t *low, const int8_t *high) {
    const auto widened = [](const int8_t *from) {
        return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    };
    const __m512i low_half = _mm512_and_si512(widened(low), _mm512_set1_epi32(0xffff));
    return {_mm512_or_si512(low_half, _mm512_slli_epi32(widened(high), 16))};
}

#elif defined(__AVX2__)

inline Words16 broadcast_word(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline Words16 add_words(Words16 a, Words16 b) {
    return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Words16 subtract_words(Words16 a, Words16 b) {
    return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
inline Words16 either_bits(Words16 a, Words16 b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

// Of signed halves of words: a.low * b.low + a.high * b.high
inline Words16 multiply_pairs(Words16 a, Words16 b) {
    return {_mm256_madd_epi16(a.low, b.low), _mm256_madd_epi16(a.high, b.high)};
}

// Signed halves of words: two products each, of unsigned and signed bytes; below 2^15 or they saturate.
inline Words16 byte_pairs(Words16 weights, Words16 x) {
    return {_mm256_maddubs_epi16(weights.low, x.low), _mm256_maddubs_epi16(weights.high, x.high)};
}
inline Words16 add_pairs(Words16 a, Words16 b) {
    return {_mm256_add_epi16(a.low, b.low), _mm256_add_epi16(a.high, b.high)};
}

inline __m256i load_pairs8(const int8_t *low, const int8_t *high) {
    const auto widened = [](const int8_t *from) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(from)));
    };
    return _mm256_blend_epi16(widened(low), _mm256_slli_epi32(widened(high), 16), 0xaa);
}

// low[i] and high[i], widened, are the halves of word i.
inline Words16 load_pairs(const int8_t *low, const int8_t *high) {
    return {load_pairs8(low, high), load_pairs8(low + 8, high + 8)};
}

#else

template <class Function> inline Words16 words_of_lanes(Function f) {
    Words16 words;
    for (int i = 0; i < 16; ++i) words.part[i / 4][i % 4] = f(i);
    return words;
}

inline int32_t lane(const Words16 &words, int i) { return words.part[i / 4][i % 4]; }
inline int32_t half(int32_t word, int i) { return static_cast<int16_t>(static_cast<uint32_t>(word) >> 16 * i); }
inline int32_t signed_byte(int32_t word, int i) { return static_cast<int8_t>(static_cast<uint32_t>(word) >> 8 * i); }
inline int32_t unsigned_byte(int32_t word, int i) { return static_cast<uint8_t>(static_cast<uint32_t>(word) >> 8 * i); }

inline int32_t join(int32_t low, int32_t high) {
    return static_cast<int32_t>((static_cast<uint32_t>(low) & 0xffffu) | static_cast<uint32_t>(high) << 16);
}

inline Words16 broadcast_word(int32_t x) {
    return words_of_parts([=](int) { return QuadInt{x, x, x, x}; });
}
inline Words16 add_words(Words16 a, Words16 b) {
    return words_of_parts([&](int i) { return a.part[i] + b.part[i]; });
}
inline Words16 subtract_words(Words16 a, Words16 b) {
    return words_of_parts([&](int i) { return a.part[i] - b.part[i]; });
}
inline Words16 either_bits(Words16 a, Words16 b) {
    return words_of_parts([&](int i) { return a.part[i] | b.part[i]; });
}

// Of signed halves of words: a.low * b.low + a.high * b.high
inline Words16 multiply_pairs(Words16 a, Words16 b) {
    return words_of_lanes(
        [&](int i) { return half(lane(a, i), 0) * half(lane(b, i), 0) + half(lane(a, i), 1) * half(lane(b, i), 1); });
}

// Signed halves of words: two products each, of unsigned and signed bytes; they must be below 2^15.
inline Words16 byte_pairs(Words16 weights, Words16 x) {
    return words_of_lanes([&](int i) {
        const int32_t w = lane(weights, i), v = lane(x, i);
        const auto product = [=](int byte) { return unsigned_byte(w, byte) * signed_byte(v, byte); };
        return join(product(0) + product(1), product(2) + product(3));
    });
}
inline Words16 add_pairs(Words16 a, Words16 b) {
    return words_of_lanes([&](int i) {
        return join(half(lane(a, i), 0) + half(lane(b, i), 0), half(lane(a, i), 1) + half(lane(b, i), 1));
    });
}

// low[i] and high[i], widened, are the halves of word i.
inline Words16 load_pairs(const int8_t *low, const int8_t *high) {
    return words_of_lanes([=](int i) { return join(low[i], high[i]); });
}

#endif

// ---------------------------------------------------------------- dots

#if defined(__AVX512VNNI__)

inline Words16 add_small_dots(Words16 sums, Words16 weights, Words16 x) {
    return {_mm512_dpbusd_epi32(sums.all, weights.all, x.all)};
}
inline Words16 total(Words16 small_dots) { return small_dots; }

#else

inline Words16 add_small_dots(Words16 sums, Words16 weights, Words16 x) {
    return add_pairs(sums, byte_pairs(weights, x));
}
inline Words16 total(Words16 small_dots) { return multiply_pairs(small_dots, broadcast_word(0x00010001)); }

#endif

} // namespace
} // namespace octavo
