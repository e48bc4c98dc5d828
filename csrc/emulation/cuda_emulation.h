// CUDA's language and device functions for g++, as far as our kernels use them. csrc/cuda/runtime.h includes this where
// nvcc does not compile; kernels include only that.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include <cuda_runtime.h>

#include "bits.h"
#include "launch.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define OCTAVO_TEXT_OF(x) #x
#define OCTAVO_TEXT(x) OCTAVO_TEXT_OF(x)
#define OCTAVO_SITE (__FILE__ ":" OCTAVO_TEXT(__LINE__))

#define OCTAVO_SHARED(type, name, count)                                                                               \
    type(&name)[count] = *static_cast<type(*)[count]>(                                                                 \
        ::octavo::emulation::shared_array(OCTAVO_SITE, sizeof(type) * static_cast<size_t>(count)))
#define OCTAVO_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(::octavo::emulation::dynamic_shared())
#define OCTAVO_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                  \
    ::octavo::emulation::launch_kernel(kernel, grid, block, shared_bytes, stream, ##__VA_ARGS__)

#define threadIdx (::octavo::emulation::here().thread)
#define blockIdx (::octavo::emulation::here().block)
#define blockDim (::octavo::emulation::here().block_dim)
#define gridDim (::octavo::emulation::here().grid_dim)
inline constexpr int warpSize = octavo::emulation::kWarpSize;

namespace octavo::emulation {

// The arguments are copied once, and again for every thread, as CUDA does.
template <class... Parameters, class... Arguments>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t,
                   Arguments &&...arguments) {
    const std::tuple<Parameters...> copies(std::forward<Arguments>(arguments)...);
    launch(grid, block, shared_bytes, [&] { std::apply(kernel, copies); });
}

} // namespace octavo::emulation

// ---------------------------------------------------------------- vectors

#define OCTAVO_VECTOR2(name, element, bytes)                                                                           \
    struct alignas(bytes) name {                                                                                       \
        element x, y;                                                                                                  \
    };                                                                                                                 \
    inline name make_##name(element x, element y) { return {x, y}; }
#define OCTAVO_VECTOR4(name, element, bytes)                                                                           \
    struct alignas(bytes) name {                                                                                       \
        element x, y, z, w;                                                                                            \
    };                                                                                                                 \
    inline name make_##name(element x, element y, element z, element w) { return {x, y, z, w}; }
OCTAVO_VECTOR2(int2, int, 8)
OCTAVO_VECTOR2(uint2, unsigned, 8)
OCTAVO_VECTOR2(float2, float, 8)
OCTAVO_VECTOR2(longlong2, long long, 16)
OCTAVO_VECTOR2(ulonglong2, unsigned long long, 16)
OCTAVO_VECTOR4(int4, int, 16)
OCTAVO_VECTOR4(uint4, unsigned, 16)
OCTAVO_VECTOR4(float4, float, 16)

// ---------------------------------------------------------------- numbers

using std::max;
using std::min;

inline float __int_as_float(int bits) { return __uint_as_float(static_cast<uint32_t>(bits)); }
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }

template <class T> T __ldg(const T *address) { return *address; }

// ---------------------------------------------------------------- barriers, and exchanges between the lanes of a warp

#define __syncthreads() ::octavo::emulation::sync_block(OCTAVO_SITE)
#define __syncwarp(...) ::octavo::emulation::sync_warp(OCTAVO_SITE, ##__VA_ARGS__)
#define __ballot_sync(mask, predicate) ::octavo::emulation::ballot(OCTAVO_SITE, mask, predicate)
#define __any_sync(mask, predicate) (::octavo::emulation::ballot(OCTAVO_SITE, mask, predicate) != 0)
#define __all_sync(mask, predicate) (::octavo::emulation::ballot(OCTAVO_SITE, mask, !(predicate)) == 0)
#define __shfl_sync(mask, ...) ::octavo::emulation::shuffle(OCTAVO_SITE, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) ::octavo::emulation::shuffle_xor(OCTAVO_SITE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) ::octavo::emulation::shuffle_up(OCTAVO_SITE, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) ::octavo::emulation::shuffle_down(OCTAVO_SITE, mask, __VA_ARGS__)

namespace octavo::emulation {

inline int lane_id() {
    const Place &place = here();
    const unsigned thread = place.thread.x + place.block_dim.x * (place.thread.y + place.block_dim.y * place.thread.z);
    return static_cast<int>(thread % kWarpSize);
}

template <class T> LaneValue to_lane_value(const T &value) {
    static_assert(sizeof(T) <= sizeof(LaneValue));
    LaneValue shown{};
    std::memcpy(shown.bytes, &value, sizeof value);
    return shown;
}

template <class T> T from_lane_value(const LaneValue &shown) {
    T value;
    std::memcpy(&value, shown.bytes, sizeof value);
    return value;
}

inline void sync_warp(const char *site, uint32_t mask = 0xffffffffu) { exchange(site, mask, LaneValue{}); }

inline uint32_t ballot(const char *site, uint32_t mask, bool predicate) {
    const LaneValue *lanes = exchange(site, mask, to_lane_value(predicate));
    uint32_t result = 0;
    for (int lane = 0; lane < kWarpSize; ++lane)
        if (mask >> lane & 1) result |= uint32_t{from_lane_value<bool>(lanes[lane])} << lane;
    return result;
}

// The value of lane `source`, or the own one if that lies outside of the group of `width` lanes.
template <class T> T shuffle_from(const char *site, uint32_t mask, T value, int source, int width) {
    const LaneValue *lanes = exchange(site, mask, to_lane_value(value));
    const int first = lane_id() / width * width;
    if (source < first || source >= first + width) return value;
    if ((mask >> source & 1) == 0) fail(site, "shuffle from an absent lane");
    return from_lane_value<T>(lanes[source]);
}

template <class T> T shuffle(const char *site, uint32_t mask, T value, int source, int width = kWarpSize) {
    return shuffle_from(site, mask, value, lane_id() / width * width + (source & (width - 1)), width);
}

template <class T> T shuffle_xor(const char *site, uint32_t mask, T value, int lanes, int width = kWarpSize) {
    return shuffle_from(site, mask, value, lane_id() ^ lanes, width);
}

template <class T> T shuffle_up(const char *site, uint32_t mask, T value, unsigned delta, int width = kWarpSize) {
    return shuffle_from(site, mask, value, lane_id() - static_cast<int>(delta), width);
}

template <class T> T shuffle_down(const char *site, uint32_t mask, T value, unsigned delta, int width = kWarpSize) {
    return shuffle_from(site, mask, value, lane_id() + static_cast<int>(delta), width);
}

} // namespace octavo::emulation

// ---------------------------------------------------------------- atomics: a fiber gives way only where it waits

template <class T> T atomicExch(T *address, T value) { return std::exchange(*address, value); }

template <class T> T atomicAdd(T *address, T value) { return atomicExch(address, static_cast<T>(*address + value)); }

template <class T> T atomicMax(T *address, T value) { return atomicExch(address, std::max(*address, value)); }

template <class T> T atomicMin(T *address, T value) { return atomicExch(address, std::min(*address, value)); }

template <class T> T atomicCAS(T *address, T expected, T value) {
    return atomicExch(address, *address == expected ? value : *address);
}

inline void __threadfence() {}
