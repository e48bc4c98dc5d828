// What a caller may pass. Every entry point checks its parameters whole before it writes anything.
#pragma once

#include <stdexcept>

#include "octavo.h"

namespace octavo {

// Names the argument, its value and the limit.
class ArgumentError : public std::invalid_argument {
    using std::invalid_argument::invalid_argument;
};

// These throw ArgumentError.
void check(const octavo_write_kv_params &params);
void check(const octavo_paged_attention_params &params);
void check(const octavo_copy_blocks_params &params);
void check(const octavo_swap_blocks_params &params);

} // namespace octavo
