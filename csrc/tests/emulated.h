// What tests of emulated kernels share: every scheduling order, element types, and closeness to float64.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "octavo_cuda.h"
#include "require.h"
#include "runtime.h"

namespace emulated {

// Whether the thread sanitizer watches: it sees a missing barrier in any order, and takes its time.
#if defined(__SANITIZE_THREAD__)
constexpr bool kFindsRaces = true;
#else
constexpr bool kFindsRaces = false;
#endif

// A result that depends on the order lacks a barrier; random priorities are drawn several times.
template <class Test> void in_every_order(Test test) {
    using octavo::emulation::Order;
    const std::pair<Order, uint64_t> orders[] = {
        {Order::kInOrder, 0}, {Order::kLastInFirstOut, 0}, {Order::kRandomWarps, 1}, {Order::kRandomWarps, 2}};
    for (const auto &[order, seed] : orders) {
        octavo::emulation::set_order(order, seed);
        test();
        if (kFindsRaces) return;
    }
}

template <class T> struct Element;

template <> struct Element<float> {
    static constexpr octavo_dtype kDtype = OCTAVO_FLOAT32;
    static constexpr double kTolerance = 1e-5;
    static float from(float value) { return value; }
    static float to_float(float value) { return value; }
};

template <> struct Element<__half> {
    static constexpr octavo_dtype kDtype = OCTAVO_FLOAT16;
    static constexpr double kTolerance = 1e-3; // half a unit in the last place
    static __half from(float value) { return __float2half_rn(value); }
    static float to_float(__half value) { return __half2float(value); }
};

template <> struct Element<__nv_bfloat16> {
    static constexpr octavo_dtype kDtype = OCTAVO_BFLOAT16;
    static constexpr double kTolerance = 8e-3;
    static __nv_bfloat16 from(float value) { return __float2bfloat16_rn(value); }
    static float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
};

template <class T> std::vector<T> normal(size_t count, unsigned seed, float deviation = 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> distribution(0, deviation);
    std::vector<T> values(count);
    std::generate(values.begin(), values.end(), [&] { return Element<T>::from(distribution(random)); });
    return values;
}

template <class T> std::vector<T> not_numbers(size_t count) { return std::vector<T>(count, Element<T>::from(NAN)); }

template <class T> void require_close(T actual, double expected) {
    const double difference = std::fabs(Element<T>::to_float(actual) - expected);
    REQUIRE(difference <= Element<T>::kTolerance * std::max(1.0, std::fabs(expected)));
}

// Runs `test` for each element type, as a value of it.
template <class Test> void for_every_element(Test test) {
    test(float{});
    test(__half{});
    test(__nv_bfloat16{});
}

} // namespace emulated
