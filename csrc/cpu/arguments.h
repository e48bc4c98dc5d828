// What a caller may pass. Every entry point checks its parameters whole before it writes anything.
#pragma once

#include <cstdint>

#include "octavo.h"
#include "requirements.h"

namespace octavo {

// These throw ArgumentError.
void check(const octavo_write_kv_params &params);
void check(const octavo_paged_attention_params &params);
void check(const octavo_copy_blocks_params &params);
void check(const octavo_swap_blocks_params &params);

// Parts of these that devices share; `pairs` lies in host memory.
void check_cache(const octavo_cache &cache, octavo_dtype last_dtype);
void check_pairs(const int64_t *pairs, int64_t num_pairs, int64_t num_sources, int64_t num_destinations);
void check_same_blocks(const octavo_cache &source, const octavo_cache &destination);

} // namespace octavo
