#include "product.h"

#include "dispatch.h"

namespace octavo {

const ProductKernels &product_kernels(int32_t) {
#if defined(__x86_64__)
    static constexpr KernelTables<ProductKernels> float32 = {&product_kernels_portable, &product_kernels_avx2,
                                                             &product_kernels_avx512, nullptr, nullptr};
#else
    static constexpr KernelTables<ProductKernels> float32 = {&product_kernels_portable};
#endif
    return best_of<ProductKernels>(float32, selected_isa());
}

} // namespace octavo
