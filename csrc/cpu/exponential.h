// exp and powers of two of sixteen floats. Included by kernel sources after simd.h, as that is.
#pragma once

#include "simd.h"

namespace octavo {
namespace {

// exp(x) for x <= 88, exactly 0 for x < -87; relative error below 2e-7. NaN stays NaN.
inline Floats16 exponential(Floats16 x) {
    const Floats16 smallest = broadcast(-87.0f);
    const Floats16 clamped = maximum(smallest, x);
    const Floats16 n = round_to_nearest(multiply(clamped, broadcast(1.44269504f)));
    Floats16 r = multiply_add(n, broadcast(-0.693359375f), clamped);
    r = multiply_add(n, broadcast(2.12194440e-4f), r);
    Floats16 p = broadcast(1.9875691500e-4f);
    p = multiply_add(p, r, broadcast(1.3981999507e-3f));
    p = multiply_add(p, r, broadcast(8.3334519073e-3f));
    p = multiply_add(p, r, broadcast(4.1665795894e-2f));
    p = multiply_add(p, r, broadcast(1.6666665459e-1f));
    p = multiply_add(p, r, broadcast(5.0000001201e-1f));
    p = multiply_add(p, multiply(r, r), add(r, broadcast(1.0f)));
    return zero_below(multiply(p, power_of_two(n)), x, smallest);
}

// 2^x for x <= 127, exactly 0 for x < -126; relative error below 2e-7. NaN stays NaN.
inline Floats16 exponential2(Floats16 x) {
    const Floats16 smallest = broadcast(-126.0f);
    const Floats16 clamped = maximum(smallest, x);
    const Floats16 n = round_to_nearest(clamped);
    const Floats16 r = subtract(clamped, n);
    Floats16 p = broadcast(1.3264727e-3f);
    p = multiply_add(p, r, broadcast(9.6715130e-3f));
    p = multiply_add(p, r, broadcast(5.5507336e-2f));
    p = multiply_add(p, r, broadcast(2.4022242e-1f));
    p = multiply_add(p, r, broadcast(6.9314700e-1f));
    p = multiply_add(p, r, broadcast(1.0f));
    return zero_below(multiply(p, power_of_two(n)), x, smallest);
}

} // namespace
} // namespace octavo
