// The batch is cut into items: one tile of query tokens × one KV head × a range of the context. Threads take items
// as they become free, the costliest first.
//
// A context is always reduced in partitions of 512 positions that are merged in order, so it makes no difference to
// the result whether one item walks all of them (a chunk of a prefill) or each is an item of its own (a decode,
// where one long sequence must keep all cores busy) and a second pass merges.
#include "attention.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "attention_kernel.h"
#include "layout.h"

namespace octavo {
namespace {

constexpr int32_t kQueryRows = 32; // of a tile: tokens × heads that share a KV head

struct Item {
    int32_t seq;
    int32_t kv_head;
    int32_t first_token; // in the batch
    int32_t num_tokens;
    int64_t begin, end; // positions
    int64_t part;       // index of the partial result it leaves; -1: it writes the output
    int64_t num_parts;  // of a merge, from `part` on
};

struct Plan {
    std::vector<Item> items;
    std::vector<Item> merges;
    int64_t num_parts = 0;
};

struct FreeDeleter {
    void operator()(float *memory) const { std::free(memory); }
};

using Floats = std::unique_ptr<float[], FreeDeleter>;

Floats allocate_floats(int64_t count) {
    void *memory = nullptr;
    if (posix_memalign(&memory, 64, static_cast<std::size_t>(std::max<int64_t>(count, 1)) * sizeof(float)) != 0)
        throw std::bad_alloc();
    return Floats(static_cast<float *>(memory));
}

class Attention {
public:
    explicit Attention(const octavo_paged_attention_params &params)
        : params_(params), kernels_(attention_kernels()), heads_per_kv_(params.num_heads / params.cache.num_kv_heads),
          tile_tokens_(std::max(1, kQueryRows / heads_per_kv_)), max_rows_(tile_tokens_ * heads_per_kv_),
          row_stride_(padded(params.cache.head_size)) {}

    void run() {
        const Plan plan = make_plan();
        parts_ = allocate_floats(plan.num_parts * state_floats());
        for_each(plan.items, [this](const Item &item, float *scratch) { reduce(item, scratch); });
        for_each(plan.merges, [this](const Item &item, float *) { merge(item); });
    }

private:
    // One state: maxima, sums and weighted rows, each part on its own cache lines.
    int64_t state_floats() const { return 2 * padded(max_rows_) + int64_t{max_rows_} * row_stride_; }

    SoftmaxState state_at(float *memory) const {
        return {memory, memory + padded(max_rows_), memory + 2 * padded(max_rows_)};
    }

    int64_t thread_floats() const {
        return int64_t{max_rows_} * row_stride_ + 2 * state_floats() + scratch_floats(params_.cache.head_size);
    }

    Plan make_plan() const {
        Plan plan;
        for (int32_t seq = 0; seq < params_.num_seqs; ++seq)
            for (int32_t head = 0; head < params_.cache.num_kv_heads; ++head) add_sequence(plan, seq, head);
        std::stable_sort(plan.items.begin(), plan.items.end(), [](const Item &a, const Item &b) {
            return (a.end - a.begin) * a.num_tokens > (b.end - b.begin) * b.num_tokens;
        });
        return plan;
    }

    void add_sequence(Plan &plan, int32_t seq, int32_t head) const {
        const int32_t first = params_.query_starts[seq], end = params_.query_starts[seq + 1];
        const int64_t first_position = int64_t{params_.context_lens[seq]} - (end - first);
        for (int32_t token = first; token < end; token += tile_tokens_) {
            const int32_t num_tokens = std::min(tile_tokens_, end - token);
            const int64_t visible = first_position + (token - first) + num_tokens;
            const Item item{seq, head, token, num_tokens, 0, visible, -1, 0};
            if (end - first <= tile_tokens_ && visible > kPartition)
                add_split(plan, item);
            else
                plan.items.push_back(item);
        }
    }

    static void add_split(Plan &plan, Item whole) {
        whole.part = plan.num_parts;
        for (int64_t begin = 0; begin < whole.end; begin += kPartition) {
            Item item = whole;
            item.begin = begin;
            item.end = std::min(begin + kPartition, whole.end);
            item.part = plan.num_parts++;
            plan.items.push_back(item);
        }
        whole.num_parts = plan.num_parts - whole.part;
        plan.merges.push_back(whole);
    }

    template <class Function> void for_each(const std::vector<Item> &items, Function function) const {
        const int64_t num_items = static_cast<int64_t>(items.size());
        bool out_of_memory = false;
#pragma omp parallel if (num_items > 1)
        {
            Floats scratch;
            try {
                scratch = allocate_floats(thread_floats());
            } catch (const std::bad_alloc &) {
#pragma omp atomic write
                out_of_memory = true;
            }
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < num_items; ++i)
                if (scratch) function(items[i], scratch.get());
        }
        if (out_of_memory) throw std::bad_alloc();
    }

    void reduce(const Item &item, float *memory) const {
        float *rows = memory;
        const SoftmaxState total = state_at(memory + int64_t{max_rows_} * row_stride_);
        const SoftmaxState part = state_at(total.maxima + state_floats());
        float *scratch = part.maxima + state_floats();
        const QueryTile query = load_query(item, rows);
        const PagedKV kv = paged_kv(item);
        if (item.part >= 0) return kernels_.attend(query, kv, item.begin, item.end, part_state(item.part), scratch);
        kernels_.attend(query, kv, 0, std::min(kPartition, item.end), total, scratch);
        for (int64_t begin = kPartition; begin < item.end; begin += kPartition) {
            kernels_.attend(query, kv, begin, std::min(begin + kPartition, item.end), part, scratch);
            kernels_.merge(total, part, query.num_rows, row_stride_);
        }
        store(item, total);
    }

    void merge(const Item &item) const {
        const SoftmaxState total = part_state(item.part);
        for (int64_t i = 1; i < item.num_parts; ++i)
            kernels_.merge(total, part_state(item.part + i), item.num_tokens * heads_per_kv_, row_stride_);
        store(item, total);
    }

    QueryTile load_query(const Item &item, float *rows) const {
        const octavo_cache &cache = params_.cache;
        const int64_t head = int64_t{item.kv_head} * heads_per_kv_ * cache.head_size;
        for (int32_t i = 0; i < item.num_tokens; ++i)
            kernels_.load_query(element(params_.query, (item.first_token + i) * params_.query_stride + head, cache),
                                cache.dtype, heads_per_kv_, cache.head_size, params_.scale,
                                rows + int64_t{i} * heads_per_kv_ * row_stride_);
        const int32_t num_after = params_.query_starts[item.seq + 1] - item.first_token;
        return {rows, item.num_tokens * heads_per_kv_, row_stride_, heads_per_kv_,
                int64_t{params_.context_lens[item.seq]} - num_after};
    }

    PagedKV paged_kv(const Item &item) const {
        const octavo_cache &cache = params_.cache;
        const int64_t first = params_.layer * layer_stride(cache) + item.kv_head * head_stride(cache);
        return {element(static_cast<const void *>(cache.pool), first, cache),
                value_offset(cache),
                block_stride(cache),
                params_.block_tables + int64_t{item.seq} * params_.max_blocks,
                cache.block_size,
                cache.head_size,
                cache.dtype};
    }

    SoftmaxState part_state(int64_t part) const { return state_at(parts_.get() + part * state_floats()); }

    void store(const Item &item, SoftmaxState state) const {
        const octavo_cache &cache = params_.cache;
        for (int32_t i = 0; i < item.num_tokens; ++i) {
            const int64_t row = int64_t{i} * heads_per_kv_;
            const int64_t head = int64_t{item.first_token + i} * params_.num_heads + item.kv_head * heads_per_kv_;
            kernels_.store_output({state.maxima + row, state.sums + row, state.weighted + row * row_stride_},
                                  heads_per_kv_, cache.head_size, cache.dtype,
                                  element(params_.output, head * cache.head_size, cache));
        }
    }

    const octavo_paged_attention_params &params_;
    const AttentionKernels &kernels_;
    const int32_t heads_per_kv_;
    const int32_t tile_tokens_;
    const int32_t max_rows_;
    const int32_t row_stride_;
    Floats parts_;
};

} // namespace

void paged_attention(const octavo_paged_attention_params &params) { Attention(params).run(); }

} // namespace octavo
