#include "product.h"

#include "dispatch.h"

namespace octavo {

const ProductKernels &product_kernels(int32_t precision) {
#if defined(__x86_64__)
    static constexpr KernelTables<ProductKernels> float32 = {&product_kernels_portable, &product_kernels_avx2,
                                                             &product_kernels_avx512, nullptr, nullptr};
    static constexpr KernelTables<ProductKernels> bfloat16 = {
        &product_kernels_portable, &product_kernels_avx2, &product_kernels_avx512, &product_bf16_kernels_avx512_bf16,
        &product_bf16_kernels_amx};
#else
    static constexpr KernelTables<ProductKernels> float32 = {&product_kernels_portable};
    static constexpr const auto &bfloat16 = float32;
#endif
    return best_of<ProductKernels>(precision == OCTAVO_PRECISION_BFLOAT16 ? bfloat16 : float32, selected_isa());
}

} // namespace octavo
