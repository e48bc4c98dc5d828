// How a step's attention is cut into items for the threads of a team; the same for all layers.
//
// An item is one tile of query tokens × KV heads × a range of the context. Few rows read several heads, which lie side
// by side in a block: memory is read in longer runs. A context is always reduced in partitions of 256 positions that
// are merged in order, so it makes no difference to the result whether one item walks all of them (a chunk of a
// prefill) or each is an item of its own (a decode, where one long sequence must keep all cores busy) and a second
// phase merges.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention_kernel.h"
#include "octavo.h"

namespace octavo {

struct AttentionItem {
    int32_t seq;
    int32_t first_head, num_heads; // KV heads
    int32_t first_token;           // in the batch
    int32_t num_tokens;
    int64_t begin, end; // positions
    int64_t part;       // index of the partial result it leaves; -1: it writes the output
    int64_t num_parts;  // of a merge, from `part` on
};

class AttentionPlan {
public:
    // Takes shapes, lengths, tables and scale of `params`, whose arrays must outlive it; `query`, `output`, `layer` and
    // `num_tokens` are not looked at. For a team of at most `num_threads`; each layer is attended once.
    AttentionPlan(const octavo_paged_attention_params &params, int num_threads);

    // Rows of an item: tokens × query heads.
    int32_t num_rows(const AttentionItem &item) const { return item.num_tokens * heads_per_kv_ * item.num_heads; }

    int64_t num_items() const { return static_cast<int64_t>(items_.size()); }

    // Whether merge() has anything to do.
    bool has_merges() const { return !merges_.empty(); }

    // Of the memory that all threads and layers share, 64-byte aligned.
    int64_t scratch_bytes() const;

    // The next item that no thread has taken, or null. The costliest come first.
    const AttentionItem *take(int layer) { return take(items_, taken_[2 * layer]); }
    const AttentionItem *take_merge(int layer) { return take(merges_, taken_[2 * layer + 1]); }

    // Whether so many are left that a thread may take one more before it needs it.
    bool has_plenty(int layer) const {
        return taken_[2 * layer].load(std::memory_order_relaxed) + 2 * num_threads_ < num_items();
    }

    const octavo_paged_attention_params &params() const { return params_; }
    const AttentionKernels &kernels() const { return kernels_; }
    int32_t heads_per_kv() const { return heads_per_kv_; }
    int32_t max_rows() const { return max_rows_; }
    int32_t row_stride() const { return row_stride_; }

    // Of one state: maxima, sums and weighted rows, each part on its own cache lines.
    int64_t state_floats() const { return 2 * padded(max_rows_) + int64_t{max_rows_} * row_stride_; }
    SoftmaxState state_at(float *memory) const {
        return {memory, memory + padded(max_rows_), memory + 2 * padded(max_rows_)};
    }

    SoftmaxState part(void *scratch, int64_t index) const {
        return state_at(static_cast<float *>(scratch) + index * state_floats());
    }
    float *thread_floats(void *scratch, int thread) const {
        return static_cast<float *>(scratch) + num_parts_ * state_floats() + thread * floats_per_thread();
    }

private:
    int32_t heads_per_item() const;
    void add_sequence(int32_t seq, int32_t heads_per_item);
    void add_tile(AttentionItem item, bool may_split);
    void add_split(AttentionItem whole);
    int64_t floats_per_thread() const;
    static const AttentionItem *take(const std::vector<AttentionItem> &items, std::atomic<int64_t> &taken);

    const octavo_paged_attention_params params_;
    const AttentionKernels &kernels_;
    const int num_threads_;
    const int32_t heads_per_kv_;
    const int32_t tile_tokens_;
    const int32_t max_rows_;
    const int32_t row_stride_;
    std::vector<AttentionItem> items_, merges_;
    int64_t num_parts_ = 0;
    std::unique_ptr<std::atomic<int64_t>[]> taken_; // [num_layers][2]: items, merges
};

} // namespace octavo
