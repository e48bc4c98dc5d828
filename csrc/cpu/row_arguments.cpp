#include "row_arguments.h"

#include <cstdint>

#include "requirements.h"

namespace octavo {
void check_rotary(const octavo_rotary_params &params) {
    require_range("num_tokens", params.num_tokens, 0, INT32_MAX);
    require_positive("num_heads", params.num_heads);
    require_multiple("head_size", params.head_size, 16);
    require_multiple("token_stride", params.token_stride, 8);
    if (params.token_stride < int64_t{params.num_heads} * params.head_size)
        refuse("token_stride", params.token_stride, "at least num_heads * head_size");
    require_pointer("heads", params.heads, params.num_tokens);
    require_pointer("cosines", params.cosines, params.num_tokens);
    require_pointer("sines", params.sines, params.num_tokens);
    require_pointer("positions", params.positions, params.num_tokens);
}

void check_norm(const octavo_norm_params &params) {
    require_range("num_tokens", params.num_tokens, 0, INT32_MAX);
    require_multiple("hidden_size", params.hidden_size, 8);
    require_pointer("residual", params.residual, params.num_tokens);
    require_pointer("weight", params.weight, params.num_tokens);
    require_pointer("output", params.output, params.num_tokens);
}

void check_activation(const octavo_activation_params &params) {
    require_range("num_tokens", params.num_tokens, 0, INT32_MAX);
    require_multiple("width", params.width, 8);
    require_pointer("input", params.input, params.num_tokens);
    require_pointer("output", params.output, params.num_tokens);
}

} // namespace octavo
