// Floats as their bits, with CUDA's names.
#pragma once

#include <cstdint>
#include <cstring>

inline float __uint_as_float(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t __float_as_uint(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
