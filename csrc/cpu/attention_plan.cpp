#include "attention_plan.h"

#include <algorithm>

namespace octavo {
namespace {

constexpr int32_t kQueryRows = 32; // of an item: tokens × query heads
constexpr int kItemsPerThread = 4; // at least, if only one KV head each allows it

static_assert(kQueryRows <= kMaxHeads, "an item with a row per head must not have more heads than the kernels take");

int64_t cost(const AttentionItem &item) { return (item.end - item.begin) * item.num_tokens * item.num_heads; }

} // namespace

AttentionPlan::AttentionPlan(const octavo_paged_attention_params &params, int num_threads)
    : params_(params), kernels_(attention_kernels()), num_threads_(num_threads),
      heads_per_kv_(params.num_heads / params.cache.num_kv_heads),
      tile_tokens_(std::max(1, kQueryRows / heads_per_kv_)), max_rows_(std::max(kQueryRows, heads_per_kv_)),
      row_stride_(padded(params.cache.head_size)),
      taken_(std::make_unique<std::atomic<int64_t>[]>(2 * params.cache.num_layers)) {
    const int32_t heads = heads_per_item();
    for (int32_t seq = 0; seq < params.num_seqs; ++seq) add_sequence(seq, heads);
    std::stable_sort(items_.begin(), items_.end(),
                     [](const AttentionItem &a, const AttentionItem &b) { return cost(a) > cost(b); });
}

int64_t AttentionPlan::scratch_bytes() const {
    return (num_parts_ * state_floats() + num_threads_ * floats_per_thread()) * static_cast<int64_t>(sizeof(float));
}

// Query rows, two states and what the kernels want.
int64_t AttentionPlan::floats_per_thread() const {
    return int64_t{max_rows_} * row_stride_ + 2 * state_floats() + scratch_floats(params_.cache.head_size);
}

// As many as leave every thread enough items.
int32_t AttentionPlan::heads_per_item() const {
    if (params_.cache.block_size % kGroup != 0) return 1;
    int64_t num_partitions = 0;
    for (int32_t seq = 0; seq < params_.num_seqs; ++seq)
        num_partitions += (params_.context_lens[seq] + kPartition - 1) / kPartition;
    const int64_t heads = params_.cache.num_kv_heads * num_partitions / (kItemsPerThread * int64_t{num_threads_});
    return static_cast<int32_t>(std::max<int64_t>(1, std::min<int64_t>(heads, params_.cache.num_kv_heads)));
}

void AttentionPlan::add_sequence(int32_t seq, int32_t heads_per_item) {
    const int32_t first = params_.query_starts[seq], end = params_.query_starts[seq + 1];
    const int64_t first_position = int64_t{params_.context_lens[seq]} - (end - first);
    for (int32_t token = first; token < end; token += tile_tokens_) {
        const int32_t num_tokens = std::min(tile_tokens_, end - token);
        const int64_t visible = first_position + (token - first) + num_tokens;
        const int32_t fitting = std::max(1, kQueryRows / (num_tokens * heads_per_kv_));
        const int32_t step = std::min(fitting, heads_per_item);
        for (int32_t head = 0; head < params_.cache.num_kv_heads; head += step)
            add_tile(
                {seq, head, std::min(step, params_.cache.num_kv_heads - head), token, num_tokens, 0, visible, -1, 0},
                end - first <= tile_tokens_);
    }
}

void AttentionPlan::add_tile(AttentionItem item, bool may_split) {
    if (may_split && item.end > kPartition)
        add_split(item);
    else
        items_.push_back(item);
}

void AttentionPlan::add_split(AttentionItem whole) {
    whole.part = num_parts_;
    for (int64_t begin = 0; begin < whole.end; begin += kPartition) {
        AttentionItem item = whole;
        item.begin = begin;
        item.end = std::min(begin + kPartition, whole.end);
        item.part = num_parts_++;
        items_.push_back(item);
    }
    whole.num_parts = num_parts_ - whole.part;
    merges_.push_back(whole);
}

const AttentionItem *AttentionPlan::take(const std::vector<AttentionItem> &items, std::atomic<int64_t> &taken) {
    const int64_t index = taken.fetch_add(1, std::memory_order_relaxed);
    return index < static_cast<int64_t>(items.size()) ? &items[index] : nullptr;
}

} // namespace octavo
