// From the sums of a panel to the rows of y. Included by kernels only.
#pragma once

#include "packed_weights.h"
#include "simd.h"

namespace octavo {
namespace {

// `sums` [num_rows][kPanel]; `y` points at the panel's first output, of which there are `num_outputs`.
inline void write_sums(const float *sums, int64_t num_rows, int64_t num_outputs, float *y, int64_t y_stride) {
    for (int64_t row = 0; row < num_rows; ++row, sums += kPanel, y += y_stride) {
        if (num_outputs == kPanel) {
            for (int i = 0; i < kPanel; i += 16) store(y + i, load(sums + i));
        } else {
            for (int64_t i = 0; i < num_outputs; ++i) y[i] = sums[i];
        }
    }
}

inline int64_t outputs_of_panel(int64_t num_outputs, int64_t panel) {
    const int64_t left = num_outputs - panel * kPanel;
    return left < kPanel ? left : kPanel;
}

} // namespace
} // namespace octavo
