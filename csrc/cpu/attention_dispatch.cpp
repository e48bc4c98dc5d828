#include "attention_kernel.h"

#include "dispatch.h"

namespace octavo {

const AttentionKernels &attention_kernels() {
#if defined(__x86_64__)
    static constexpr KernelTables<AttentionKernels> tables = {&attention_kernels_portable, &attention_kernels_avx2,
                                                              &attention_kernels_avx512, nullptr, nullptr};
#else
    static constexpr KernelTables<AttentionKernels> tables = {&attention_kernels_portable};
#endif
    return best_of<AttentionKernels>(tables, selected_isa());
}

} // namespace octavo
