// Sixteen floats: one logical vector width on every instruction set, so that one source serves all.
//
// Every function does the same roundings in the same order each time; fused multiply-add is used where the set has it.
// `Half` functions touch eight elements. Included by kernel sources only; everything is in an anonymous namespace.
#pragma once

#include <cstdint>

#include "float16.h"

namespace octavo {
struct bfloat16 {
    uint16_t bits;
};
} // namespace octavo

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif
