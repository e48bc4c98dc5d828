// Which instruction set is used.
#pragma once

#include "attention_kernel.h"

namespace octavo {

// The best that this machine has, unless another was selected.
const AttentionKernels &kernels();

// "auto", "avx512", "avx2" or "portable". Throws ArgumentError for one that is unknown or that this machine lacks.
void select_isa(const char *name);

} // namespace octavo
