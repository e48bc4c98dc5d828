// The toolkit's half on the host, rounded to nearest even.
#pragma once

#include "bits.h"

struct __half {
    uint16_t bits;
};

inline float __half2float(__half x) {
    const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, magnitude = x.bits & 0x7fffu;
    if (magnitude >= 0x7c00) return __uint_as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    // Moves the exponent by a product, which is exact and knows subnormal numbers.
    const float value = __uint_as_float(magnitude << 13) * 0x1p112f;
    return __uint_as_float(sign | __float_as_uint(value));
}

inline __half __float2half_rn(float x) {
    const uint32_t bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return {0x7fff};
    if (magnitude >= 0x477ff000) return {static_cast<uint16_t>(sign | 0x7c00)}; // rounds to more than 65504
    uint32_t rounded;
    if (magnitude < 0x38800000) // subnormal: the sum aligns the last bit, and rounds
        rounded = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000;
    else
        rounded = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    return {static_cast<uint16_t>(sign | rounded)};
}
