// Elements of a kernel: 16 bytes at a time, products in float32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "octavo.h"
#include "requirements.h"
#include "runtime.h"

namespace octavo::cuda {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T> __device__ inline T from_float(float value);
template <> __device__ inline float from_float(float value) { return value; }
template <> __device__ inline __half from_float(float value) { return __float2half_rn(value); }
template <> __device__ inline __nv_bfloat16 from_float(float value) { return __float2bfloat16_rn(value); }

// What one load or store moves.
template <class T> struct alignas(16) Pack {
    static constexpr int kSize = 16 / sizeof(T);
    T values[kSize];
};
static_assert(sizeof(Pack<float>) == 16 && sizeof(Pack<__half>) == 16 && sizeof(Pack<__nv_bfloat16>) == 16);

template <class T> __device__ inline Pack<T> load(const T *from) { return *reinterpret_cast<const Pack<T> *>(from); }

template <class T> __device__ inline void store(T *to, const Pack<T> &pack) { *reinterpret_cast<Pack<T> *>(to) = pack; }

// As many float32 as a pack of T has elements: one or two loads.
template <class T> struct Floats {
    Pack<float> parts[Pack<T>::kSize / 4];

    __device__ float &operator[](int i) { return parts[i / 4].values[i % 4]; }
    __device__ float operator[](int i) const { return parts[i / 4].values[i % 4]; }
};

template <class T> __device__ inline Floats<T> load_floats(const float *from) {
    Floats<T> floats;
#pragma unroll
    for (int part = 0; part < Pack<T>::kSize / 4; ++part) floats.parts[part] = load(from + 4 * part);
    return floats;
}

template <class T> __device__ inline void store_floats(float *to, const Floats<T> &floats) {
#pragma unroll
    for (int part = 0; part < Pack<T>::kSize / 4; ++part) store(to + 4 * part, floats.parts[part]);
}

// Calls `function` with a value of the element type that `dtype` names.
template <class Function> void with_element(int32_t dtype, Function function) {
    require_range("dtype", dtype, OCTAVO_FLOAT32, OCTAVO_FLOAT16);
    if (dtype == OCTAVO_FLOAT32) return function(float{});
    if (dtype == OCTAVO_BFLOAT16) return function(__nv_bfloat16{});
    return function(__half{});
}

inline void require_aligned(const char *name, const void *pointer) {
    if (reinterpret_cast<uintptr_t>(pointer) % 16 != 0)
        throw ArgumentError(std::string(name) + " does not start at a multiple of 16 bytes");
}

inline int64_t quotient_rounded_up(int64_t dividend, int64_t divisor) { return (dividend + divisor - 1) / divisor; }

} // namespace octavo::cuda
