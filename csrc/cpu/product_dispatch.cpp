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
    static constexpr KernelTables<ProductKernels> int8 = {&product_int8_kernels_portable, &product_int8_kernels_avx2,
                                                          &product_int8_kernels_avx512,
                                                          &product_int8_kernels_avx512_bf16, nullptr};
#else
    static constexpr KernelTables<ProductKernels> float32 = {&product_kernels_portable};
    static constexpr KernelTables<ProductKernels> int8 = {&product_int8_kernels_portable};
    static constexpr const auto &bfloat16 = float32;
#endif
    const Isa isa = selected_isa();
    if (precision == OCTAVO_PRECISION_INT8) return best_of<ProductKernels>(int8, isa);
    return best_of<ProductKernels>(precision == OCTAVO_PRECISION_BFLOAT16 ? bfloat16 : float32, isa);
}

} // namespace octavo
