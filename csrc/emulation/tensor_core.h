// The matrix instruction m16n8k16 and asynchronous copies, emulated. Sums run over k upwards in float32; the real units
// round otherwise in the last bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda_emulation.h"

namespace octavo::emulation {

inline float widen(__half x) { return __half2float(x); }
inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <class T> float element_of(uint32_t pair, int index) {
    return widen(T{static_cast<uint16_t>(pair >> 16 * index)});
}

// What one lane holds of A [16][16] and B [16][8]: with g = lane / 4 and t = lane % 4, pairs along k from 2t on.
struct Operands {
    uint32_t a[4]; // rows g, g + 8, g, g + 8; the last two 8 further along k
    uint32_t b[2]; // column g; the last one 8 further along k
};

// c [16][8] += A * B; a lane holds columns 2t and 2t + 1 of rows g (c[0], c[1]) and g + 8 (c[2], c[3]).
template <class T> void multiply_add(const char *site, float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const Operands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const LaneValue *lanes = exchange(site, 0xffffffffu, to_lane_value(mine));
    const int lane = lane_id(), g = lane / 4, t = lane % 4;
    Operands rows[4], columns[2][4];
    for (int owner = 0; owner < 4; ++owner) {
        rows[owner] = from_lane_value<Operands>(lanes[4 * g + owner]);
        for (int column = 0; column < 2; ++column)
            columns[column][owner] = from_lane_value<Operands>(lanes[4 * (2 * t + column) + owner]);
    }
    for (int k = 0; k < 16; ++k) {
        const int half = k / 8, owner = k % 8 / 2, index = k % 2;
        for (int column = 0; column < 2; ++column) {
            const float factor = element_of<T>(columns[column][owner].b[half], index);
            c[column] += element_of<T>(rows[owner].a[2 * half], index) * factor;
            c[2 + column] += element_of<T>(rows[owner].a[2 * half + 1], index) * factor;
        }
    }
}

template <class T> uint32_t pair_of(const T &low, const T &high) { return low.bits | uint32_t{high.bits} << 16; }

} // namespace octavo::emulation
