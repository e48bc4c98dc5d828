// What a caller may pass to the kernels for single rows, on every device.
#pragma once

#include "octavo.h"

namespace octavo {

// These throw ArgumentError. Element types, which differ between devices, are left to the caller.
void check_rotary(const octavo_rotary_params &params);
void check_norm(const octavo_norm_params &params);
void check_activation(const octavo_activation_params &params);

} // namespace octavo
