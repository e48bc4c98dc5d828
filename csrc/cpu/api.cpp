// The C entry points: check, carry out, turn exceptions into statuses.
#include <string>

#include "arguments.h"
#include "attention.h"
#include "dispatch.h"
#include "guarded.h"
#include "octavo.h"
#include "rows.h"
#include "sampling.h"
#include "transfers.h"

namespace {

thread_local std::string last_error;

template <class Params> int32_t checked(const Params &params, void (*carry_out)(const Params &)) {
    return octavo::guarded([&] {
        octavo::check(params);
        carry_out(params);
    });
}

} // namespace

void octavo::set_last_error(const std::string &message) { last_error = message; }

int32_t octavo_abi_version(void) { return OCTAVO_ABI_VERSION; }

const char *octavo_last_error(void) { return last_error.c_str(); }

const char *octavo_cpu_isa(void) { return octavo::isa_name(octavo::selected_isa()); }

int32_t octavo_cpu_select_isa(const char *name) {
    return octavo::guarded([&] { octavo::select_isa(name); });
}

int32_t octavo_cpu_write_kv(octavo_write_kv_params params) { return checked(params, octavo::write_kv); }

int32_t octavo_cpu_paged_attention(octavo_paged_attention_params params) {
    return checked(params, octavo::paged_attention);
}

int32_t octavo_cpu_copy_blocks(octavo_copy_blocks_params params) { return checked(params, octavo::copy_blocks); }

int32_t octavo_cpu_swap_blocks(octavo_swap_blocks_params params) { return checked(params, octavo::swap_blocks); }

int32_t octavo_cpu_rotary(octavo_rotary_params params) { return checked(params, octavo::rotary); }

int32_t octavo_cpu_rms_norm(octavo_norm_params params) { return checked(params, octavo::rms_norm); }

int32_t octavo_cpu_layer_norm(octavo_norm_params params) { return checked(params, octavo::layer_norm); }

int32_t octavo_cpu_silu_mul(octavo_activation_params params) { return checked(params, octavo::silu_mul); }

int32_t octavo_cpu_gelu(octavo_activation_params params) { return checked(params, octavo::gelu); }

int32_t octavo_cpu_gelu_tanh(octavo_activation_params params) { return checked(params, octavo::gelu_tanh); }

int32_t octavo_cpu_sample(octavo_sample_params params) { return checked(params, octavo::sample); }
