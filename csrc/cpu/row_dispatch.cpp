#include "dispatch.h"
#include "row_kernel.h"

namespace octavo {

const RowKernels &row_kernels() {
#if defined(__x86_64__)
    static constexpr KernelTables<RowKernels> tables = {&row_kernels_portable, &row_kernels_avx2, &row_kernels_avx512,
                                                        nullptr, nullptr};
#else
    static constexpr KernelTables<RowKernels> tables = {&row_kernels_portable};
#endif
    return best_of<RowKernels>(tables, selected_isa());
}

} // namespace octavo
