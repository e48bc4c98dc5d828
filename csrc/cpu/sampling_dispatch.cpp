#include "dispatch.h"
#include "sampling_kernel.h"

namespace octavo {

const SamplingKernels &sampling_kernels() {
#if defined(__x86_64__)
    static constexpr KernelTables<SamplingKernels> tables = {&sampling_kernels_portable, &sampling_kernels_avx2,
                                                             &sampling_kernels_avx512, nullptr, nullptr};
#else
    static constexpr KernelTables<SamplingKernels> tables = {&sampling_kernels_portable};
#endif
    return best_of<SamplingKernels>(tables, selected_isa());
}

} // namespace octavo
