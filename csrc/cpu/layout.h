// Where things lie in a pool; offsets in elements unless the name says bytes.
#pragma once

#include <cstdint>

#include "octavo.h"

namespace octavo {

inline int64_t element_bytes(int32_t dtype) { return dtype == OCTAVO_FLOAT32 ? 4 : 2; }

inline int64_t element_bytes(const octavo_cache &cache) { return element_bytes(cache.dtype); }

// From a key to its value.
inline int64_t value_offset(const octavo_cache &cache) { return int64_t{cache.block_size} * cache.head_size; }

// From one KV head of a block and layer to the next.
inline int64_t head_stride(const octavo_cache &cache) { return 2 * value_offset(cache); }

inline int64_t layer_stride(const octavo_cache &cache) { return cache.num_kv_heads * head_stride(cache); }

inline int64_t block_stride(const octavo_cache &cache) { return cache.num_layers * layer_stride(cache); }

inline int64_t block_bytes(const octavo_cache &cache) { return block_stride(cache) * element_bytes(cache); }

// The element `offset` of an array of the cache's dtype.
inline char *element(void *array, int64_t offset, const octavo_cache &cache) {
    return static_cast<char *>(array) + offset * element_bytes(cache);
}

inline const char *element(const void *array, int64_t offset, const octavo_cache &cache) {
    return static_cast<const char *>(array) + offset * element_bytes(cache);
}

} // namespace octavo
