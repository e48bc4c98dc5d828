// Norms, rotary and activations of many rows, cut among the threads (octavo.h).
#pragma once

#include "octavo.h"

namespace octavo {

// These throw ArgumentError.
void check(const octavo_rotary_params &params);
void check(const octavo_norm_params &params);
void check(const octavo_activation_params &params);

// Parameters have been checked.
void rotary(const octavo_rotary_params &params);
void rms_norm(const octavo_norm_params &params);
void layer_norm(const octavo_norm_params &params);
void silu_mul(const octavo_activation_params &params);
void gelu(const octavo_activation_params &params);
void gelu_tanh(const octavo_activation_params &params);

} // namespace octavo
