#include "transfers.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "attention_kernel.h"
#include "layout.h"
#include "transfer_plan.h"

namespace octavo {

namespace {

// `key`, `value`: [num_kv_heads][head_size] of `dtype`.
void store_token(const octavo_cache &cache, int layer, int64_t slot, const char *key, const char *value,
                 int32_t dtype) {
    const int64_t layer_of_block = slot / cache.block_size * block_stride(cache) + layer * layer_stride(cache);
    const int64_t row_bytes = cache.head_size * element_bytes(dtype);
    for (int32_t head = 0; head < cache.num_kv_heads; ++head)
        attention_kernels().store_kv(key + head * row_bytes, value + head * row_bytes, dtype,
                                     {element(cache.pool, layer_of_block + head * head_stride(cache), cache),
                                      value_offset(cache), static_cast<int>(slot % cache.block_size), cache.block_size,
                                      cache.head_size, cache.dtype});
}

} // namespace

void store_kv(const octavo_cache &cache, int layer, int64_t slot, const float *key, const float *value) {
    store_token(cache, layer, slot, reinterpret_cast<const char *>(key), reinterpret_cast<const char *>(value),
                OCTAVO_FLOAT32);
}

void write_kv(const octavo_write_kv_params &params) {
    const octavo_cache &cache = params.cache;
#pragma omp parallel for schedule(static) if (params.num_tokens >= 64)
    for (int64_t token = 0; token < params.num_tokens; ++token)
        store_token(cache, params.layer, params.slot_mapping[token],
                    element(params.key, token * params.key_stride, cache),
                    element(params.value, token * params.value_stride, cache), cache.dtype);
}

void copy_blocks(const octavo_copy_blocks_params &params) {
    const int64_t bytes = block_bytes(params.cache);
    char *pool = static_cast<char *>(params.cache.pool);
    const auto waves = plan_copies(params.pairs, params.num_pairs);
    const bool has_cycle = std::any_of(
        waves.begin(), waves.end(), [](const std::vector<Move> &wave) { return wave.front().destination == kSpare; });
    const std::unique_ptr<char[]> spare(has_cycle ? new char[bytes] : nullptr);
    const auto place = [&](int64_t block) { return block == kSpare ? spare.get() : pool + block * bytes; };
    for (const std::vector<Move> &wave : waves) {
        const int64_t num_moves = static_cast<int64_t>(wave.size());
#pragma omp parallel for schedule(dynamic) if (num_moves > 1)
        for (int64_t i = 0; i < num_moves; ++i) std::memcpy(place(wave[i].destination), place(wave[i].source), bytes);
    }
}

void swap_blocks(const octavo_swap_blocks_params &params) {
    const int64_t bytes = block_bytes(params.source);
    const char *source = static_cast<const char *>(params.source.pool);
    char *destination = static_cast<char *>(params.destination.pool);
    const std::vector<Run> runs = plan_swaps(params.pairs, params.num_pairs);
    const int64_t num_runs = static_cast<int64_t>(runs.size());
#pragma omp parallel for schedule(dynamic) if (num_runs > 1)
    for (int64_t i = 0; i < num_runs; ++i)
        std::memcpy(destination + runs[i].destination * bytes, source + runs[i].source * bytes,
                    runs[i].num_blocks * bytes);
}

} // namespace octavo
