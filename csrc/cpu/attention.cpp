#include "attention.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "layout.h"

namespace octavo {
namespace {

int64_t row_bytes(const AttentionPlan &plan, int32_t dtype) {
    return plan.params().cache.head_size * element_bytes(dtype);
}

QueryTile load_query(const AttentionPlan &plan, const AttentionItem &item, const AttentionRows &from, float *rows) {
    const octavo_paged_attention_params &params = plan.params();
    const int32_t heads = plan.heads_per_kv();
    const char *query = static_cast<const char *>(from.query) + item.kv_head * heads * row_bytes(plan, from.dtype);
    for (int32_t i = 0; i < item.num_tokens; ++i)
        plan.kernels().load_query(query + (item.first_token + i) * from.query_stride * element_bytes(from.dtype),
                                  from.dtype, heads, params.cache.head_size, params.scale,
                                  rows + int64_t{i} * heads * plan.row_stride());
    const int32_t num_after = params.query_starts[item.seq + 1] - item.first_token;
    return {rows, item.num_tokens * heads, plan.row_stride(), heads,
            int64_t{params.context_lens[item.seq]} - num_after};
}

PagedKV paged_kv(const AttentionPlan &plan, const AttentionItem &item, int layer) {
    const octavo_cache &cache = plan.params().cache;
    const int64_t first = layer * layer_stride(cache) + item.kv_head * head_stride(cache);
    return {element(static_cast<const void *>(cache.pool), first, cache),
            value_offset(cache),
            block_stride(cache),
            plan.params().block_tables + int64_t{item.seq} * plan.params().max_blocks,
            cache.block_size,
            cache.head_size,
            cache.dtype};
}

void store(const AttentionPlan &plan, const AttentionItem &item, SoftmaxState state, const AttentionRows &to) {
    const int32_t heads = plan.heads_per_kv();
    for (int32_t i = 0; i < item.num_tokens; ++i) {
        const int64_t row = int64_t{i} * heads;
        const int64_t head = int64_t{item.first_token + i} * plan.params().num_heads + item.kv_head * heads;
        plan.kernels().store_output({state.maxima + row, state.sums + row, state.weighted + row * plan.row_stride()},
                                    heads, plan.params().cache.head_size, to.dtype,
                                    static_cast<char *>(to.output) + head * row_bytes(plan, to.dtype));
    }
}

struct FreeDeleter {
    void operator()(void *memory) const { std::free(memory); }
};

using Scratch = std::unique_ptr<void, FreeDeleter>;

Scratch allocate(int64_t num_bytes) {
    void *memory = nullptr;
    if (posix_memalign(&memory, 64, static_cast<std::size_t>(num_bytes)) != 0) throw std::bad_alloc();
    return Scratch(memory);
}

} // namespace

void attend(AttentionPlan &plan, int layer, const AttentionRows &rows, int thread, void *scratch) {
    const AttentionKernels &kernels = plan.kernels();
    float *const query_rows = plan.thread_floats(scratch, thread);
    const SoftmaxState total = plan.state_at(query_rows + int64_t{plan.max_rows()} * plan.row_stride());
    const SoftmaxState part = plan.state_at(total.maxima + plan.state_floats());
    float *const kernel_scratch = part.maxima + plan.state_floats();
    while (const AttentionItem *item = plan.take(layer)) {
        const QueryTile query = load_query(plan, *item, rows, query_rows);
        const PagedKV kv = paged_kv(plan, *item, layer);
        if (item->part >= 0) {
            kernels.attend(query, kv, item->begin, item->end, plan.part(scratch, item->part), kernel_scratch);
            continue;
        }
        kernels.attend(query, kv, 0, std::min(kPartition, item->end), total, kernel_scratch);
        for (int64_t begin = kPartition; begin < item->end; begin += kPartition) {
            kernels.attend(query, kv, begin, std::min(begin + kPartition, item->end), part, kernel_scratch);
            kernels.merge(total, part, query.num_rows, plan.row_stride());
        }
        store(plan, *item, total, rows);
    }
}

void merge(AttentionPlan &plan, int layer, const AttentionRows &rows, void *scratch) {
    while (const AttentionItem *item = plan.take_merge(layer)) {
        const SoftmaxState total = plan.part(scratch, item->part);
        for (int64_t i = 1; i < item->num_parts; ++i)
            plan.kernels().merge(total, plan.part(scratch, item->part + i), item->num_tokens * plan.heads_per_kv(),
                                 plan.row_stride());
        store(plan, *item, total, rows);
    }
}

void paged_attention(const octavo_paged_attention_params &params) {
    const int max_threads = omp_get_max_threads();
    AttentionPlan plan(params, max_threads);
    const int num_threads = static_cast<int>(std::min<int64_t>(max_threads, std::max<int64_t>(plan.num_items(), 1)));
    const Scratch scratch = allocate(plan.scratch_bytes());
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
