// Products of small tiles by one warp: tensor cores for 16-bit elements, as PTX on a device and emulated on the CPU.
//
// Lane 4g + t holds of a 16 x 8 result the columns 2t and 2t + 1 of the rows g and g + 8 (m16n8k16 of the PTX manual).
#pragma once

#include "elements.h"
#include "runtime.h"
#if defined(OCTAVO_EMULATED)
#include "tensor_core.h"
#endif

namespace octavo::cuda {

struct LeftOperand {
    uint32_t pairs[4]; // [16][16], row by row
};
struct RightOperand {
    uint32_t pairs[2]; // [16][8], column by column
};

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x % 32); }
__device__ inline int row_of_lane() { return lane_of_warp() / 4; }
__device__ inline int column_of_lane() { return 2 * (lane_of_warp() % 4); }

#if defined(OCTAVO_EMULATED)

template <class T> uint32_t pack_pair(float low, float high) {
    return emulation::pair_of(from_float<T>(low), from_float<T>(high));
}

// `tile`: [16][16] of rows `stride` apart.
template <class T> LeftOperand load_left(const T *tile, int stride) {
    const T *first = tile + row_of_lane() * stride + column_of_lane(), *second = first + 8 * stride;
    return {{emulation::pair_of(first[0], first[1]), emulation::pair_of(second[0], second[1]),
             emulation::pair_of(first[8], first[9]), emulation::pair_of(second[8], second[9])}};
}

// `tile`: [8][16], the right operand's columns as rows.
template <class T> RightOperand load_right_columns(const T *tile, int stride) {
    const T *column = tile + row_of_lane() * stride + column_of_lane();
    return {{emulation::pair_of(column[0], column[1]), emulation::pair_of(column[8], column[9])}};
}

// `tile`: [16][8], the right operand's rows as rows.
template <class T> RightOperand load_right_rows(const T *tile, int stride) {
    const T *rows = tile + column_of_lane() * stride + row_of_lane();
    return {{emulation::pair_of(rows[0], rows[stride]), emulation::pair_of(rows[8 * stride], rows[9 * stride])}};
}

template <class T> void multiply_add(float (&sums)[4], const LeftOperand &left, const RightOperand &right) {
    emulation::multiply_add<T>(OCTAVO_SITE, sums, left.pairs, right.pairs);
}

#else

template <class T> __device__ inline uint32_t pack_pair(float low, float high) {
    const T pair[2] = {from_float<T>(low), from_float<T>(high)};
    return *reinterpret_cast<const uint16_t *>(&pair[0]) |
           static_cast<uint32_t>(*reinterpret_cast<const uint16_t *>(&pair[1])) << 16;
}

__device__ inline unsigned shared_address(const void *shared) {
    return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

template <class T> __device__ inline LeftOperand load_left(const T *tile, int stride) {
    LeftOperand left;
    const T *row = tile + lane_of_warp() % 16 * stride + lane_of_warp() / 16 * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(left.pairs[0]), "=r"(left.pairs[1]), "=r"(left.pairs[2]), "=r"(left.pairs[3])
                 : "r"(shared_address(row))
                 : "memory");
    return left;
}

template <class T> __device__ inline RightOperand load_right_columns(const T *tile, int stride) {
    RightOperand right;
    const T *row = tile + lane_of_warp() % 8 * stride + lane_of_warp() / 8 % 2 * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(right.pairs[0]), "=r"(right.pairs[1])
                 : "r"(shared_address(row))
                 : "memory");
    return right;
}

template <class T> __device__ inline RightOperand load_right_rows(const T *tile, int stride) {
    RightOperand right;
    const T *row = tile + lane_of_warp() % 16 * stride;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(right.pairs[0]), "=r"(right.pairs[1])
                 : "r"(shared_address(row))
                 : "memory");
    return right;
}

template <class T>
__device__ inline void multiply_add(float (&sums)[4], const LeftOperand &left, const RightOperand &right) {
    static_assert(sizeof(T) == 2, "tensor cores multiply 16-bit elements");
    if constexpr (std::is_same_v<T, __half>)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                     "{%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]),
                       "r"(right.pairs[0]), "r"(right.pairs[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                     "{%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                     : "r"(left.pairs[0]), "r"(left.pairs[1]), "r"(left.pairs[2]), "r"(left.pairs[3]),
                       "r"(right.pairs[0]), "r"(right.pairs[1]));
}

#endif

} // namespace octavo::cuda
