// Writing, copying and swapping KV. Parameters have been checked.
#pragma once

#include "octavo.h"

namespace octavo {

void write_kv(const octavo_write_kv_params &params);
void copy_blocks(const octavo_copy_blocks_params &params);
void swap_blocks(const octavo_swap_blocks_params &params);

} // namespace octavo
