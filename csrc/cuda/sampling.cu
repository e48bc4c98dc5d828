// Tokens from logits, in the order of docs/sampling.md. Built without fused multiply-add, so that every step rounds as
// gpuworker's own sampler does; sums are of integers, so that no order of adding shows in the result.
#include "block_reduction.h"
#include "elements.h"
#include "entry.h"
#include "philox.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr float kLargest = 3.402823466e38f;         // finite
constexpr float kMinTemperature = 1.175494351e-38f; // a smaller one would be 0 where denormals are flushed
constexpr float kUnit = 35184372088832.0f;          // 2^45 units of mass are a weight of 1
static_assert((uint64_t{1} << 45) * OCTAVO_MAX_VOCAB_SIZE <= uint64_t{1} << 63, "the weights of a row add up");

using Quad = Pack<float>;

struct Shared {
    uint64_t mass[kWarps];
    float value[kWarps];
    int32_t index[kWarps];
};

// One row's values in the workspace: the logits, then what becomes of them. Padded with -infinity to whole quads.
struct Row {
    float *values;
    int32_t num_values; // a multiple of 4

    // Visits the quads of the calling thread; the same ones each time.
    template <class Visit> __device__ void each_quad(Visit visit) const {
        for (int32_t i = 4 * threadIdx.x; i < num_values; i += 4 * kThreads) visit(i, load(values + i));
    }

    template <class Change> __device__ void change_each(Change change) const {
        each_quad([&](int32_t i, Quad quad) {
#pragma unroll
            for (float &value : quad.values) value = change(value);
            store(values + i, quad);
        });
    }
};

__device__ int32_t padded(int32_t vocab_size) { return (vocab_size + 3) / 4 * 4; }

__device__ bool is_finite(float value) { return fabsf(value) <= kLargest; } // false for NaN

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Lower {
    __device__ int32_t operator()(int32_t a, int32_t b) const { return a < b ? a : b; }
};

// Copies the logits to the workspace. Whether none of them is NaN or +infinity.
template <class T> __device__ bool widen(const T *logits, int32_t vocab_size, const Row &row, Shared &shared) {
    int32_t is_bad = 0;
    for (int32_t i = threadIdx.x; i < row.num_values; i += kThreads) {
        const float logit = i < vocab_size ? to_float(logits[i]) : -INFINITY;
        is_bad |= !(logit <= kLargest);
        row.values[i] = logit;
    }
    return reduce_block<kThreads>(is_bad, Add{}, shared.index) == 0;
}

__device__ float penalized(float logit, int64_t count, const octavo_sampling_row &rules) {
    float shifted = logit > 0 ? logit / rules.repetition_penalty : logit * rules.repetition_penalty;
    shifted -= rules.frequency_penalty * static_cast<float>(count);
    shifted -= rules.presence_penalty * (count > 0 ? 1.0f : 0.0f);
    return fminf(shifted, kLargest);
}

__device__ void penalize(const octavo_sample_params &params, const octavo_sampling_row &rules, const Row &row) {
    for (int64_t i = rules.seen_start + threadIdx.x; i < rules.seen_end; i += kThreads) {
        float &logit = row.values[params.seen_token_ids[i]];
        logit = penalized(logit, params.output_counts[i], rules);
    }
    __syncthreads();
}

__device__ float largest_of(const Row &row, Shared &shared) {
    float largest = -INFINITY;
    row.each_quad([&](int32_t, const Quad &quad) {
#pragma unroll
        for (const float value : quad.values) largest = fmaxf(largest, value);
    });
    return reduce_block<kThreads>(largest, Larger{}, shared.value);
}

__device__ int32_t first_equal_to(float wanted, const Row &row, Shared &shared) {
    int32_t first = INT32_MAX;
    row.each_quad([&](int32_t i, const Quad &quad) {
#pragma unroll
        for (int32_t j = 0; j < 4; ++j)
            if (quad.values[j] == wanted) first = Lower{}(first, i + j);
    });
    return reduce_block<kThreads>(first, Lower{}, shared.index);
}

// An unsigned number for each float, in the same order.
__device__ uint32_t key_of(float value) {
    const uint32_t bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ float value_of(uint32_t key) { return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key); }

struct OneEach {
    __device__ uint64_t operator()(float) const { return 1; }
};

struct ByWeight {
    __device__ uint64_t operator()(float weight) const { return static_cast<uint64_t>(weight * kUnit); }
};

// The largest value with this property: all values from it up have `target` mass together. Two bits of its key at a
// time, from the highest on; at each three candidates. There is that much mass.
template <class Measure>
__device__ float value_reaching(uint64_t target, const Row &row, Measure measure, Shared &shared) {
    uint32_t key = 0;
    for (int shift = 30; shift >= 0; shift -= 2) {
        uint64_t masses[3] = {0, 0, 0};
        row.each_quad([&](int32_t, const Quad &quad) {
#pragma unroll
            for (const float value : quad.values)
#pragma unroll
                for (uint32_t digit = 1; digit <= 3; ++digit)
                    if (key_of(value) >= (key | digit << shift)) masses[digit - 1] += measure(value);
        });
        uint32_t digit = 0;
#pragma unroll
        for (const uint64_t mass : masses) digit += reduce_block<kThreads>(mass, Add{}, shared.mass) >= target;
        key |= digit << shift;
    }
    return value_of(key);
}

__device__ void keep_from(float threshold, float filling, const Row &row) {
    row.change_each([&](float value) { return value < threshold ? filling : value; });
}

// Logits become logarithms of probabilities up to a constant; the largest becomes 0.
__device__ void scale(float largest, float temperature, const Row &row) {
    const float divisor = fmaxf(temperature, kMinTemperature);
    row.change_each([&](float logit) { return (logit - largest) / divisor; });
}

__device__ uint64_t mass_of(const Row &row, Shared &shared) {
    uint64_t mass = 0;
    row.each_quad([&](int32_t, const Quad &quad) {
#pragma unroll
        for (const float weight : quad.values) mass += ByWeight{}(weight);
    });
    return reduce_block<kThreads>(mass, Add{}, shared.mass);
}

__device__ void keep_top_p(double top_p, const Row &row, Shared &shared) {
    if (top_p >= 1) return;
    const double target = ceil(static_cast<double>(mass_of(row, shared)) * top_p);
    const uint64_t at_least_one = target < 1 ? 1 : static_cast<uint64_t>(target);
    keep_from(value_reaching(at_least_one, row, ByWeight{}, shared), 0, row);
}

// What the threads before this one have, and what all have.
struct Prefix {
    uint64_t before;
    uint64_t all;
};

__device__ Prefix prefix_of(uint64_t mine, Shared &shared) {
    const int lane = threadIdx.x % kWarpSize, own_warp = threadIdx.x / kWarpSize;
    uint64_t up_to_me = mine;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
        const uint64_t other = __shfl_up_sync(kAllLanes, up_to_me, distance);
        if (lane >= distance) up_to_me += other;
    }
    if (lane == kWarpSize - 1) shared.mass[own_warp] = up_to_me;
    __syncthreads();
    Prefix prefix{up_to_me - mine, 0};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
        if (warp < own_warp) prefix.before += shared.mass[warp];
        prefix.all += shared.mass[warp];
    }
    __syncthreads();
    return prefix;
}

// The first token up to which the mass exceeds `target`, told to the thread that has it; kNone to the others.
constexpr int32_t kNone = -1;

__device__ int32_t token_beyond(uint64_t target, const Row &row, Shared &shared) {
    uint64_t before_tile = 0;
    for (int32_t tile = 0; tile < row.num_values; tile += 4 * kThreads) {
        const int32_t first = tile + 4 * threadIdx.x;
        const Quad quad = first < row.num_values ? load(row.values + first) : Quad{};
        uint64_t mine = 0;
#pragma unroll
        for (const float weight : quad.values) mine += ByWeight{}(weight);
        const Prefix prefix = prefix_of(mine, shared);
        uint64_t mass = before_tile + prefix.before;
        before_tile += prefix.all;
        if (before_tile <= target) continue;
        if (mass > target || mass + mine <= target) return kNone;
        int32_t offset = 0;
#pragma unroll
        for (const float weight : quad.values) offset += (mass += ByWeight{}(weight)) <= target;
        return first + offset;
    }
    return kNone;
}

// floor(mass * bits / 2^52): an integer exceeds it if it exceeds the product.
__device__ uint64_t share_of(uint64_t mass, uint64_t bits) {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(mass) * bits >> 52);
}

__device__ void draw(const octavo_sampling_row &rules, float largest, const Row &row, Shared &shared, int64_t &token) {
    scale(largest, rules.temperature, row);
    if (rules.log_min_p > -INFINITY) keep_from(rules.log_min_p, -INFINITY, row);
    if (rules.top_k > 0 && rules.top_k < row.num_values)
        keep_from(value_reaching(rules.top_k, row, OneEach{}, shared), -INFINITY, row);
    row.change_each([](float value) { return expf(value); });
    keep_top_p(rules.top_p, row, shared);
    const uint64_t bits = random_bits52(rules.seed, rules.choice_index, rules.position);
    const int32_t drawn = token_beyond(share_of(mass_of(row, shared), bits), row, shared);
    if (drawn != kNone) token = drawn;
}

// Grid: one block a row.
template <class T> __global__ void __launch_bounds__(kThreads) sample(octavo_sample_params params) {
    OCTAVO_SHARED(Shared, shared_of_block, 1);
    Shared &shared = shared_of_block[0];
    const octavo_sampling_row &rules = params.rows[blockIdx.x];
    int64_t &token = params.token_ids[blockIdx.x];
    const int32_t num_values = padded(params.vocab_size);
    const Row row{params.workspace + int64_t{blockIdx.x} * num_values, num_values};
    const T *logits = static_cast<const T *>(params.logits) + int64_t{blockIdx.x} * params.vocab_size;
    if (!widen(logits, params.vocab_size, row, shared)) {
        if (threadIdx.x == 0) token = OCTAVO_LOGITS_NOT_FINITE;
        return;
    }
    penalize(params, rules, row);
    const float largest = largest_of(row, shared);
    if (is_finite(largest) && rules.temperature > 0) return draw(rules, largest, row, shared, token);
    const int32_t first = first_equal_to(largest, row, shared);
    if (threadIdx.x == 0) token = is_finite(largest) ? first : OCTAVO_NO_TOKEN;
}

void require_null(const char *name, const void *pointer) {
    if (pointer != nullptr)
        throw ArgumentError(std::string(name) + " must be null: the CUDA sampler has no such thing");
}

void check(const octavo_sample_params &params) {
    require_range("num_rows", params.num_rows, 0, INT32_MAX);
    require_range("vocab_size", params.vocab_size, 1, OCTAVO_MAX_VOCAB_SIZE);
    require_pointer("logits", params.logits, params.num_rows);
    require_pointer("rows", params.rows, params.num_rows);
    require_pointer("workspace", params.workspace, params.num_rows);
    require_pointer("token_ids", params.token_ids, params.num_rows);
    require_aligned("workspace", params.workspace);
    require_null("logits_rows", params.logits_rows);
    require_null("logprobs", params.logprobs);
    require_null("top_token_ids", params.top_token_ids);
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_sample(octavo_sample_params params, octavo_cuda_stream stream) {
    using namespace octavo::cuda;
    return guarded([&] {
        octavo::cuda::check(params);
        with_element(params.dtype, [&](auto element) {
            if (params.num_rows == 0) return;
            OCTAVO_LAUNCH(sample<decltype(element)>, dim3(params.num_rows), dim3(kThreads), 0, stream_of(stream),
                          params);
            require(cudaGetLastError(), "launching the sampler");
        });
    });
}
