// Paged attention under the emulation beside sums in double: sequences scattered over a pool of NaN.
#pragma once

#include <numeric>

#include "emulated.h"

namespace emulated {

struct Shape {
    int32_t head_size = 64, num_kv_heads = 1, group = 2, block_size = 16;
};

struct Lengths {
    int32_t context, num_new;
};

// Every sequence's last tokens attend.
template <class T> class AttentionProblem {
public:
    AttentionProblem(const Shape &shape, const std::vector<Lengths> &lengths) : shape_(shape), lengths_(lengths) {
        for (const Lengths &length : lengths) {
            max_blocks_ = std::max(max_blocks_, blocks_of(length));
            num_blocks_ += blocks_of(length);
            contexts_.push_back(length.context);
            starts_.push_back(starts_.back() + length.num_new);
        }
        num_blocks_ += 2; // owned by nobody
        pool_ = not_numbers<T>(size_t{2} * 2 * num_blocks_ * shape.num_kv_heads * shape.block_size * shape.head_size);
        fill_tables();
        query_ = normal<T>(size_t(starts_.back()) * num_heads() * shape.head_size, 2);
        output_ = not_numbers<T>(query_.size());
    }

    void attend(bool split) {
        std::fill(output_.begin(), output_.end(), Element<T>::from(NAN));
        const octavo_paged_attention_params call = params();
        std::vector<float> workspace(octavo_cuda_attention_workspace_bytes(call) / sizeof(float), NAN);
        status_ = octavo_cuda_paged_attention(call, split ? workspace.data() : nullptr, nullptr);
    }

    bool is_right() const {
        if (status_ != OCTAVO_OK) return false;
        double error = 0;
        for (size_t seq = 0; seq < lengths_.size(); ++seq)
            for (int32_t token = starts_[seq]; token < starts_[seq + 1]; ++token)
                for (int32_t head = 0; head < num_heads(); ++head) error = std::max(error, error_of(seq, token, head));
        return error <= Element<T>::kTolerance;
    }

    std::vector<float> output() const {
        std::vector<float> floats;
        for (const T x : output_) floats.push_back(Element<T>::to_float(x));
        return floats;
    }

    std::vector<int32_t> &tables() { return tables_; }
    int32_t status() const { return status_; }
    int32_t num_blocks() const { return num_blocks_; }
    int32_t unowned_block() const { return unowned_; }

    // The same memory with other new tokens: the last `num_new` of the first sequence alone.
    std::vector<float> attend_alone(int32_t num_new, int32_t skipped_at_end, bool split) {
        octavo_paged_attention_params call = params();
        const int32_t starts[] = {0, num_new}, context = contexts_[0] - skipped_at_end;
        call.query_starts = starts;
        call.context_lens = &context;
        call.num_seqs = 1;
        call.num_tokens = num_new;
        const size_t row = size_t(num_heads()) * shape_.head_size;
        call.query = query_.data() + (lengths_[0].num_new - skipped_at_end - num_new) * row;
        std::vector<T> output = not_numbers<T>(num_new * row);
        call.output = output.data();
        std::vector<float> workspace(octavo_cuda_attention_workspace_bytes(call) / sizeof(float), NAN);
        REQUIRE(octavo_cuda_paged_attention(call, split ? workspace.data() : nullptr, nullptr) == OCTAVO_OK);
        std::vector<float> floats;
        for (const T x : output) floats.push_back(Element<T>::to_float(x));
        return floats;
    }

private:
    static constexpr float kScale = 0.2f;

    int32_t num_heads() const { return shape_.num_kv_heads * shape_.group; }
    int32_t blocks_of(const Lengths &length) const {
        return (length.context + shape_.block_size - 1) / shape_.block_size;
    }

    octavo_paged_attention_params params() {
        octavo_paged_attention_params call = {};
        call.cache = {pool_.data(),     num_blocks_,       2, shape_.num_kv_heads, shape_.block_size,
                      shape_.head_size, Element<T>::kDtype};
        call.query = query_.data();
        call.output = output_.data();
        call.query_starts = starts_.data();
        call.context_lens = contexts_.data();
        call.block_tables = tables_.data();
        call.num_tokens = starts_.back();
        call.query_stride = int64_t{num_heads()} * shape_.head_size;
        call.num_seqs = static_cast<int32_t>(lengths_.size());
        call.max_blocks = max_blocks_;
        call.num_heads = num_heads();
        call.layer = 1;
        call.scale = kScale;
        return call;
    }

    // Gives out blocks in random order and fills the slots of the contexts, of layer 1, and no others.
    void fill_tables() {
        std::vector<int32_t> ids(num_blocks_);
        std::iota(ids.begin(), ids.end(), 0);
        std::shuffle(ids.begin(), ids.end(), std::mt19937(3));
        tables_.assign(lengths_.size() * max_blocks_, -1);
        for (size_t seq = 0; seq < lengths_.size(); ++seq)
            for (int32_t i = 0; i < blocks_of(lengths_[seq]); ++i) {
                tables_[seq * max_blocks_ + i] = ids.back();
                ids.pop_back();
            }
        unowned_ = ids.back();
        std::mt19937 random(5);
        std::normal_distribution<float> distribution;
        for (size_t seq = 0; seq < lengths_.size(); ++seq)
            for (int32_t position = 0; position < contexts_[seq]; ++position)
                for (int32_t which : {0, 1})
                    for (int32_t head = 0; head < shape_.num_kv_heads; ++head)
                        for (int32_t d = 0; d < shape_.head_size; ++d)
                            pool_[place(seq, which, head, position) + d] = Element<T>::from(distribution(random));
    }

    size_t place(size_t seq, int32_t which, int32_t head, int32_t position) const {
        const size_t block = tables_[seq * max_blocks_ + position / shape_.block_size];
        const size_t heads = ((block * 2 + 1) * 2 + which) * shape_.num_kv_heads + head;
        return (heads * shape_.block_size + position % shape_.block_size) * shape_.head_size;
    }

    double error_of(size_t seq, int32_t token, int32_t head) const {
        const int32_t visible = contexts_[seq] - (starts_[seq + 1] - 1 - token);
        const size_t row = (size_t(token) * num_heads() + head) * shape_.head_size;
        std::vector<double> sums(shape_.head_size);
        double total = 0;
        for (int32_t position = 0; position < visible; ++position) {
            const T *key = &pool_[place(seq, 0, head / shape_.group, position)];
            const T *value = &pool_[place(seq, 1, head / shape_.group, position)];
            double score = 0;
            for (int32_t d = 0; d < shape_.head_size; ++d)
                score += double{Element<T>::to_float(query_[row + d])} * Element<T>::to_float(key[d]);
            const double weight = std::exp(score * kScale);
            total += weight;
            for (int32_t d = 0; d < shape_.head_size; ++d) sums[d] += weight * Element<T>::to_float(value[d]);
        }
        double error = 0;
        for (int32_t d = 0; d < shape_.head_size; ++d) {
            const double expected = sums[d] / total;
            const double difference =
                std::fabs(Element<T>::to_float(output_[row + d]) - expected) / std::max(1.0, std::fabs(expected));
            if (!(difference <= error)) error = std::isnan(difference) ? INFINITY : difference;
        }
        return error;
    }

    Shape shape_;
    std::vector<Lengths> lengths_;
    std::vector<int32_t> starts_ = {0}, contexts_, tables_;
    int32_t num_blocks_ = 0, max_blocks_ = 0, unowned_ = 0;
    int32_t status_ = OCTAVO_OK;
    std::vector<T> pool_, query_, output_;
};

} // namespace emulated
