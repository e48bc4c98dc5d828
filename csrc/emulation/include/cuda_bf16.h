// The toolkit's bfloat16 on the host, rounded to nearest even.
#pragma once

#include "bits.h"

struct __nv_bfloat16 {
    uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }

inline __nv_bfloat16 __float2bfloat16_rn(float x) {
    if (x != x) return {0x7fff};
    const uint32_t bits = __float_as_uint(x);
    return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
