// Copies of 16 bytes from global to shared memory that do not pass through registers.
#pragma once

#include "runtime.h"

namespace octavo::cuda {

// Nothing may be read before wait_copies and a barrier. Where `present` is false, zeros arrive and nothing is read.
__device__ inline void start_copy(void *shared, const void *global, bool present) {
#if defined(OCTAVO_EMULATED)
    emulation::start_copy(OCTAVO_SITE, shared, global, present ? 16 : 0);
#else
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global), "r"(present ? 16 : 0)
                 : "memory");
#endif
}

// Ends a group of copies.
__device__ inline void commit_copies() {
#if defined(OCTAVO_EMULATED)
    emulation::commit_copies();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for this thread's copies but those of the last kNumPending groups.
template <int kNumPending> __device__ inline void wait_copies() {
#if defined(OCTAVO_EMULATED)
    emulation::wait_copies(kNumPending);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(kNumPending) : "memory");
#endif
}

} // namespace octavo::cuda
