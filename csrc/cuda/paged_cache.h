// What the kernels that read and write KV memory in place demand of it.
#pragma once

#include "arguments.h"
#include "elements.h"

namespace octavo::cuda {

constexpr int32_t kLargestBlockSize = 256;

inline void require_paged(const octavo_cache &cache, int32_t layer) {
    check_cache(cache, OCTAVO_FLOAT16);
    require_range("layer", layer, 0, cache.num_layers - 1);
    require_range("num_kv_heads", cache.num_kv_heads, 1, 65535);
    if (cache.block_size > kLargestBlockSize || (cache.block_size & (cache.block_size - 1)) != 0)
        refuse("block_size", cache.block_size, "a power of two up to " + std::to_string(kLargestBlockSize));
    require_aligned("pool", cache.pool);
}

} // namespace octavo::cuda
