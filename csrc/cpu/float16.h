// IEEE half precision as it lies in memory.
#pragma once

#include <cstdint>

namespace octavo {

struct float16 {
    uint16_t bits;
};

static inline float widen(float16 x) {
    const uint32_t magnitude = (x.bits & 0x7fffu) << 13;
    const uint32_t sign = (x.bits & 0x8000u) << 16;
    float wide, result;
    __builtin_memcpy(&wide, &magnitude, sizeof wide);
    wide *= 0x1p112f; // from a bias of 15 to one of 127; subnormals become normal
    uint32_t bits;
    __builtin_memcpy(&bits, &wide, sizeof bits);
    bits |= sign | (magnitude >= 0x0f800000u ? 0x7f800000u : 0u); // infinities and NaN
    __builtin_memcpy(&result, &bits, sizeof result);
    return result;
}

} // namespace octavo
