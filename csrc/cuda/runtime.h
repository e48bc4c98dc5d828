// CUDA, or its emulation on the CPU: what every kernel source includes. Kernels write these three macros where the two
// differ, and are plain CUDA otherwise.
//   OCTAVO_SHARED(type, name, count)                          a static array in shared memory
//   OCTAVO_DYNAMIC_SHARED(type, name)                         a pointer to the launch's dynamic shared memory
//   OCTAVO_LAUNCH(kernel, grid, block, bytes, stream, ...)    a launch; a template with commas goes in parentheses
#pragma once

#if defined(OCTAVO_EMULATED)

#include "cuda_emulation.h"

#else

#include <cuda_runtime.h>

#define OCTAVO_SHARED(type, name, count) __shared__ type name[count]
#define OCTAVO_DYNAMIC_SHARED(type, name)                                                                              \
    extern __shared__ uint4 octavo_dynamic_shared[];                                                                   \
    type *name = reinterpret_cast<type *>(octavo_dynamic_shared)
#define OCTAVO_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                                  \
    kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

#endif
