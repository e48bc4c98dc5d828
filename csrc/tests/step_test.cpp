// A whole step of a small random model: the same bits in one piece, in chunks, among others and with any number of
// threads; and what it refuses.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "octavo_step.h"
#include "require.h"

namespace {

constexpr int32_t kLayers = 2, kHeads = 4, kKVHeads = 2, kHeadSize = 16, kBlockSize = 4, kBlocks = 24;
constexpr int64_t kHidden = 64, kIntermediate = 96, kVocab = 80, kPositions = 64;

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};

using Memory = std::unique_ptr<void, Free>;

Memory allocate(int64_t num_bytes) {
    void *memory = std::aligned_alloc(64, static_cast<std::size_t>((num_bytes + 63) / 64 * 64));
    REQUIRE(memory != nullptr);
    return Memory(memory);
}

uint32_t state = 1;

float random_float() { // -1 to 1
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
}

std::vector<float> random_floats(int64_t count, float scale) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float &value : values) value = random_float() * scale;
    return values;
}

struct RandomModel {
    octavo_matrix matrix(int64_t num_outputs, int64_t num_inputs) {
        const std::vector<float> rows = random_floats(num_outputs * num_inputs, 0.3f);
        packed.push_back(allocate(octavo_cpu_packed_bytes(OCTAVO_WEIGHT_FLOAT32, num_outputs, num_inputs)));
        octavo_pack_params params = {};
        params.rows = rows.data();
        params.packed = packed.back().get();
        params.num_outputs = num_outputs;
        params.num_inputs = num_inputs;
        params.format = OCTAVO_WEIGHT_FLOAT32;
        REQUIRE(octavo_cpu_pack(params) == OCTAVO_OK);
        return {packed.back().get(), num_outputs, num_inputs, OCTAVO_WEIGHT_FLOAT32};
    }

    RandomModel() {
        for (octavo_layer &layer : layers)
            layer = {norm.data(),
                     norm.data(),
                     matrix(kHeads * kHeadSize, kHidden),
                     matrix(kKVHeads * kHeadSize, kHidden),
                     matrix(kKVHeads * kHeadSize, kHidden),
                     matrix(kHidden, kHeads * kHeadSize),
                     matrix(kIntermediate, kHidden),
                     matrix(kIntermediate, kHidden),
                     matrix(kHidden, kIntermediate)};
        for (int64_t i = 0; i < kPositions * kHeadSize / 2; ++i) {
            const double angle =
                static_cast<double>(i / (kHeadSize / 2)) / static_cast<double>(1 + i % (kHeadSize / 2));
            cosines.push_back(static_cast<float>(std::cos(angle)));
            sines.push_back(static_cast<float>(std::sin(angle)));
        }
        params.layers = layers;
        params.embedding = params.lm_head = matrix(kVocab, kHidden);
        params.final_norm = norm.data();
        params.cos = cosines.data();
        params.sin = sines.data();
        params.num_positions = kPositions;
        params.num_layers = kLayers;
        params.num_heads = kHeads;
        params.num_kv_heads = kKVHeads;
        params.head_size = kHeadSize;
        params.precision = OCTAVO_PRECISION_FLOAT32;
        params.rms_norm_eps = 1e-5f;
    }

    octavo_layer layers[kLayers];
    std::vector<float> norm = std::vector<float>(kHidden, 1.0f);
    std::vector<float> cosines, sines;
    std::vector<Memory> packed;
    octavo_model_params params = {};
};

// A sequence's new tokens, after `before` that were computed earlier.
struct Chunk {
    int32_t first_token, before, count, first_block;
};

// The library's model with a pool of its own, all of whose slots are NaN at first.
class Worker {
public:
    Worker(RandomModel &model, int32_t num_threads) {
        model.params.num_threads = num_threads;
        REQUIRE(octavo_cpu_create_model(model.params, &model_) == OCTAVO_OK);
        cache_ = {pool_.data(), kBlocks, kLayers, kKVHeads, kBlockSize, kHeadSize, OCTAVO_FLOAT32};
    }
    ~Worker() { octavo_cpu_destroy_model(model_); }
    Worker(const Worker &) = delete;
    Worker &operator=(const Worker &) = delete;

    // Logits of every new token, in `logits`; the greedy token after each chunk, in `tokens`.
    int32_t step(const std::vector<Chunk> &chunks) {
        std::vector<int32_t> token_ids, positions, starts{0}, contexts, tables, rows;
        std::vector<int64_t> slots, logit_rows;
        for (const Chunk &chunk : chunks) {
            for (int32_t position = chunk.before; position < chunk.before + chunk.count; ++position) {
                rows.push_back(static_cast<int32_t>(token_ids.size()));
                token_ids.push_back((chunk.first_token + position * 7) % static_cast<int32_t>(kVocab));
                positions.push_back(position);
                slots.push_back((chunk.first_block + position / kBlockSize) * kBlockSize + position % kBlockSize);
            }
            starts.push_back(static_cast<int32_t>(token_ids.size()));
            contexts.push_back(chunk.before + chunk.count);
            for (int32_t block = 0; block < kTable; ++block) tables.push_back(chunk.first_block + block);
            logit_rows.push_back(starts.back() - 1);
        }
        logits.assign(token_ids.size() * kVocab, 0.0f);
        tokens.assign(chunks.size(), -2);
        std::vector<octavo_sampling_row> sampled(chunks.size());
        for (octavo_sampling_row &row : sampled) row.top_p = row.repetition_penalty = 1.0f;
        octavo_step_params params = {};
        params.cache = cache_;
        params.token_ids = token_ids.data();
        params.positions = positions.data();
        params.slot_mapping = slots.data();
        params.query_starts = starts.data();
        params.context_lens = contexts.data();
        params.block_tables = tables.data();
        params.logit_rows = rows.data();
        params.logits = logits.data();
        params.phase_ns = phase_ns;
        params.num_tokens = static_cast<int64_t>(token_ids.size());
        params.num_seqs = static_cast<int32_t>(chunks.size());
        params.max_blocks = kTable;
        params.num_logit_rows = static_cast<int32_t>(rows.size());
        params.sampling.logits_rows = logit_rows.data();
        params.sampling.rows = sampled.data();
        params.sampling.token_ids = tokens.data();
        params.sampling.num_logits = params.num_logit_rows;
        params.sampling.num_rows = params.num_seqs;
        params.sampling.vocab_size = kVocab;
        return octavo_cpu_step(model_, params);
    }

    std::vector<float> logits;
    std::vector<int64_t> tokens;
    int64_t phase_ns[OCTAVO_NUM_PHASES];

private:
    static constexpr int32_t kTable = 8;

    octavo_model *model_ = nullptr;
    std::vector<float> pool_ =
        std::vector<float>(static_cast<std::size_t>(kBlocks) * kLayers * 2 * kKVHeads * kBlockSize * kHeadSize, NAN);
    octavo_cache cache_;
};

int64_t largest(const float *row) {
    int64_t best = 0;
    for (int64_t i = 1; i < kVocab; ++i)
        if (row[i] > row[best]) best = i;
    return best;
}

void test_chunks_and_threads(RandomModel &model) {
    Worker whole(model, 1);
    REQUIRE(whole.step({{3, 0, 30, 0}}) == OCTAVO_OK);
    for (const float logit : whole.logits) REQUIRE(std::isfinite(logit));
    REQUIRE(whole.tokens[0] == largest(whole.logits.data() + 29 * kVocab));
    for (const int32_t num_threads : {1, 2, 5}) {
        Worker chunked(model, num_threads);
        int32_t before = 0;
        for (const int32_t count : {1, 3, 17, 1, 8}) {
            REQUIRE(chunked.step({{3, before, count, 8}}) == OCTAVO_OK);
            REQUIRE(std::memcmp(chunked.logits.data(), whole.logits.data() + before * kVocab,
                                chunked.logits.size() * sizeof(float)) == 0);
            before += count;
        }
    }
}

void test_company(RandomModel &model) {
    Worker alone(model, 1), together(model, 3);
    REQUIRE(together.step({{3, 0, 9, 0}, {40, 0, 20, 8}, {11, 0, 1, 16}}) == OCTAVO_OK);
    REQUIRE(alone.step({{40, 0, 20, 0}}) == OCTAVO_OK);
    REQUIRE(together.tokens[1] == alone.tokens[0]);
    REQUIRE(std::memcmp(together.logits.data() + 9 * kVocab, alone.logits.data(), 20 * kVocab * sizeof(float)) == 0);
    int64_t total_ns = 0;
    for (const int64_t spent_ns : together.phase_ns) total_ns += spent_ns;
    REQUIRE(total_ns > 0);
}

void test_refusals(RandomModel &model) {
    Worker worker(model, 1);
    REQUIRE(worker.step({{3, 63, 2, 0}}) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()).find("context_lens[0] is 65") != std::string::npos);
    REQUIRE(worker.step({{-500, 0, 1, 0}}) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()).find("token_ids[0] is ") != std::string::npos);
    octavo_model_params wrong = model.params;
    wrong.head_size = 24;
    octavo_model *none = nullptr;
    REQUIRE(octavo_cpu_create_model(wrong, &none) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(none == nullptr);
}

} // namespace

int main() {
    RandomModel model;
    test_chunks_and_threads(model);
    test_company(model);
    test_refusals(model);
    return 0;
}
