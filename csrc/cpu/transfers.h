// Writing, copying and swapping KV. Parameters have been checked.
#pragma once

#include "octavo.h"

namespace octavo {

// One token's rows, [num_kv_heads][head_size] of float32, into its slot, rounded to the cache's type. Threads may store
// different slots at a time.
void store_kv(const octavo_cache &cache, int layer, int64_t slot, const float *key, const float *value);

void write_kv(const octavo_write_kv_params &params);
void copy_blocks(const octavo_copy_blocks_params &params);
void swap_blocks(const octavo_swap_blocks_params &params);

} // namespace octavo
