#include "arguments.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "requirements.h"

namespace octavo {
namespace {

using std::to_string;

void check_layer(int32_t layer, const octavo_cache &cache) { require_range("layer", layer, 0, cache.num_layers - 1); }

void check_sequence(const octavo_paged_attention_params &params, int32_t seq) {
    const int64_t num_new = int64_t{params.query_starts[seq + 1]} - params.query_starts[seq];
    if (num_new < 0) refuse(at("query_starts", seq + 1), params.query_starts[seq + 1], "no less than the one before");
    const int64_t context_len = params.context_lens[seq];
    if (context_len < num_new)
        refuse(at("context_lens", seq), context_len, "no less than its " + to_string(num_new) + " new tokens");
    const int64_t num_blocks = (context_len + params.cache.block_size - 1) / params.cache.block_size;
    if (num_blocks > params.max_blocks)
        refuse(at("context_lens", seq), context_len,
               "at most the " + to_string(int64_t{params.max_blocks} * params.cache.block_size) +
                   " tokens that a row of block_tables can hold");
    const int32_t *table = params.block_tables + int64_t{seq} * params.max_blocks;
    for (int64_t i = 0; i < num_blocks; ++i)
        if (table[i] < 0 || table[i] >= params.cache.num_blocks)
            require_range(at("block_tables", seq) + at("", i), table[i], 0, params.cache.num_blocks - 1);
}

} // namespace

void check_cache(const octavo_cache &cache, octavo_dtype last_dtype) {
    require_pointer("pool", cache.pool, cache.num_blocks);
    if (cache.num_blocks < 0) refuse("num_blocks", cache.num_blocks, "at least 0");
    require_positive("num_layers", cache.num_layers);
    require_positive("num_kv_heads", cache.num_kv_heads);
    require_positive("block_size", cache.block_size);
    require_positive("head_size", cache.head_size);
    if (cache.head_size % 8 != 0) refuse("head_size", cache.head_size, "a multiple of 8");
    require_range("dtype", cache.dtype, OCTAVO_FLOAT32, last_dtype);
}

void check_pairs(const int64_t *pairs, int64_t num_pairs, int64_t num_sources, int64_t num_destinations) {
    require_pointer("pairs", pairs, num_pairs);
    if (num_pairs < 0) refuse("num_pairs", num_pairs, "at least 0");
    std::vector<int64_t> destinations(num_pairs);
    for (int64_t i = 0; i < num_pairs; ++i) {
        require_range("source block of " + at("pairs", i), pairs[2 * i], 0, num_sources - 1);
        require_range("destination block of " + at("pairs", i), pairs[2 * i + 1], 0, num_destinations - 1);
        destinations[i] = pairs[2 * i + 1];
    }
    std::sort(destinations.begin(), destinations.end());
    const auto twice = std::adjacent_find(destinations.begin(), destinations.end());
    if (twice != destinations.end())
        throw ArgumentError("destination block " + to_string(*twice) + " is written more than once");
}

void check_same_blocks(const octavo_cache &a, const octavo_cache &b) {
    if (a.num_layers != b.num_layers || a.num_kv_heads != b.num_kv_heads || a.block_size != b.block_size ||
        a.head_size != b.head_size || a.dtype != b.dtype)
        throw ArgumentError("a block of source differs in shape or dtype from a block of destination");
}

void check(const octavo_write_kv_params &params) {
    check_cache(params.cache, OCTAVO_BFLOAT16);
    check_layer(params.layer, params.cache);
    if (params.num_tokens < 0) refuse("num_tokens", params.num_tokens, "at least 0");
    require_pointer("key", params.key, params.num_tokens);
    require_pointer("value", params.value, params.num_tokens);
    require_pointer("slot_mapping", params.slot_mapping, params.num_tokens);
    const int64_t num_slots = params.cache.num_blocks * params.cache.block_size;
    for (int64_t i = 0; i < params.num_tokens; ++i)
        if (params.slot_mapping[i] < 0 || params.slot_mapping[i] >= num_slots)
            require_range(at("slot_mapping", i), params.slot_mapping[i], 0, num_slots - 1);
}

void check(const octavo_paged_attention_params &params) {
    check_cache(params.cache, OCTAVO_BFLOAT16);
    check_layer(params.layer, params.cache);
    if (params.num_tokens < 0) refuse("num_tokens", params.num_tokens, "at least 0");
    if (params.num_seqs < 0) refuse("num_seqs", params.num_seqs, "at least 0");
    if (params.num_heads < 1 || params.num_heads % params.cache.num_kv_heads != 0)
        refuse("num_heads", params.num_heads, "a positive multiple of " + to_string(params.cache.num_kv_heads));
    require_pointer("query", params.query, params.num_tokens);
    require_pointer("output", params.output, params.num_tokens);
    require_pointer("query_starts", params.query_starts, 1);
    require_pointer("context_lens", params.context_lens, params.num_seqs);
    require_pointer("block_tables", params.block_tables, int64_t{params.num_seqs} * params.max_blocks);
    require_range("query_starts[0]", params.query_starts[0], 0, 0);
    require_range(at("query_starts", params.num_seqs), params.query_starts[params.num_seqs], params.num_tokens,
                  params.num_tokens);
    for (int32_t seq = 0; seq < params.num_seqs; ++seq) check_sequence(params, seq);
}

void check(const octavo_copy_blocks_params &params) {
    check_cache(params.cache, OCTAVO_BFLOAT16);
    check_pairs(params.pairs, params.num_pairs, params.cache.num_blocks, params.cache.num_blocks);
}

void check(const octavo_swap_blocks_params &params) {
    check_cache(params.source, OCTAVO_BFLOAT16);
    check_cache(params.destination, OCTAVO_BFLOAT16);
    check_same_blocks(params.source, params.destination);
    check_pairs(params.pairs, params.num_pairs, params.source.num_blocks, params.destination.num_blocks);
}

} // namespace octavo
