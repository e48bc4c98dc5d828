#include "attention.h"

#include <omp.h>

#include <algorithm>

#include "aligned_memory.h"
#include "layout.h"

namespace octavo {
namespace {

int64_t row_bytes(const AttentionPlan &plan, int32_t dtype) {
    return plan.params().cache.head_size * element_bytes(dtype);
}

QueryTile load_query(const AttentionPlan &plan, const AttentionItem &item, const AttentionRows &from, float *rows) {
    const octavo_paged_attention_params &params = plan.params();
    const int32_t heads = plan.heads_per_kv();
    float *to = rows;
    for (int32_t head = item.first_head; head < item.first_head + item.num_heads; ++head)
        for (int32_t i = 0; i < item.num_tokens; ++i, to += int64_t{heads} * plan.row_stride())
            plan.kernels().load_query(static_cast<const char *>(from.query) +
                                          head * heads * row_bytes(plan, from.dtype) +
                                          (item.first_token + i) * from.query_stride * element_bytes(from.dtype),
                                      from.dtype, heads, params.cache.head_size, params.scale, to);
    const int32_t num_after = params.query_starts[item.seq + 1] - item.first_token;
    return {rows, item.num_tokens * heads, plan.row_stride(), heads,
            int64_t{params.context_lens[item.seq]} - num_after};
}

PagedKV paged_kv(const AttentionPlan &plan, const AttentionItem &item, int layer) {
    const octavo_cache &cache = plan.params().cache;
    const int64_t first = layer * layer_stride(cache) + item.first_head * head_stride(cache);
    return {element(static_cast<const void *>(cache.pool), first, cache),
            value_offset(cache),
            head_stride(cache),
            block_stride(cache),
            plan.params().block_tables + int64_t{item.seq} * plan.params().max_blocks,
            item.num_heads,
            cache.block_size,
            cache.head_size,
            cache.dtype};
}

// The partition of an item that starts at `begin`.
KVRange partition(const AttentionPlan &plan, const AttentionItem &item, int layer, int64_t begin) {
    return {paged_kv(plan, item, layer), begin, std::min(begin + kPartition, item.end)};
}

void store(const AttentionPlan &plan, const AttentionItem &item, SoftmaxState state, const AttentionRows &to) {
    const int32_t heads = plan.heads_per_kv();
    int64_t row = 0;
    for (int32_t head = item.first_head; head < item.first_head + item.num_heads; ++head)
        for (int32_t i = 0; i < item.num_tokens; ++i, row += heads) {
            const int64_t place = int64_t{item.first_token + i} * plan.params().num_heads + head * heads;
            plan.kernels().store_output(
                {state.maxima + row, state.sums + row, state.weighted + row * plan.row_stride()}, heads,
                plan.params().cache.head_size, to.dtype,
                static_cast<char *>(to.output) + place * row_bytes(plan, to.dtype));
        }
}

} // namespace

void attend(AttentionPlan &plan, int layer, const AttentionRows &rows, int thread, void *scratch) {
    const AttentionKernels &kernels = plan.kernels();
    float *const query_rows = plan.thread_floats(scratch, thread);
    const SoftmaxState total = plan.state_at(query_rows + int64_t{plan.max_rows()} * plan.row_stride());
    const SoftmaxState part = plan.state_at(total.maxima + plan.state_floats());
    float *const kernel_scratch = part.maxima + plan.state_floats();
    const AttentionItem *item = plan.take(layer);
    while (item != nullptr) {
        const AttentionItem *next = plan.has_plenty(layer) ? plan.take(layer) : nullptr;
        const QueryTile query = load_query(plan, *item, rows, query_rows);
        KVRange range = partition(plan, *item, layer, item->begin);
        for (bool is_first = true; range.begin < item->end; is_first = false) {
            const bool is_last = range.end == item->end;
            const KVRange upcoming =
                !is_last ? partition(plan, *item, layer, range.end)
                         : partition(plan, next ? *next : *item, layer, next ? next->begin : item->begin);
            const SoftmaxState to = item->part >= 0 ? plan.part(scratch, item->part) : is_first ? total : part;
            kernels.attend(query, range, is_last && next == nullptr ? nullptr : &upcoming, to, kernel_scratch);
            if (!is_first) kernels.merge(total, part, plan.num_rows(*item), plan.row_stride());
            if (is_last) break;
            range = upcoming;
        }
        if (item->part < 0) store(plan, *item, total, rows);
        item = next != nullptr ? next : plan.take(layer);
    }
}

void merge(AttentionPlan &plan, int layer, const AttentionRows &rows, void *scratch) {
    while (const AttentionItem *item = plan.take_merge(layer)) {
        const SoftmaxState total = plan.part(scratch, item->part);
        for (int64_t i = 1; i < item->num_parts; ++i)
            plan.kernels().merge(total, plan.part(scratch, item->part + i), plan.num_rows(*item), plan.row_stride());
        store(plan, *item, total, rows);
    }
}

void paged_attention(const octavo_paged_attention_params &params) {
    const int max_threads = omp_get_max_threads();
    AttentionPlan plan(params, max_threads);
    const int num_threads = static_cast<int>(std::min<int64_t>(max_threads, std::max<int64_t>(plan.num_items(), 1)));
    const AlignedMemory scratch(plan.scratch_bytes());
    const AttentionRows rows{params.query, params.output, params.query_stride, params.cache.dtype};
#pragma omp parallel num_threads(num_threads)
    {
        attend(plan, params.layer, rows, omp_get_thread_num(), scratch.get());
        if (plan.has_merges()) {
#pragma omp barrier
            merge(plan, params.layer, rows, scratch.get());
        }
    }
}

} // namespace octavo
