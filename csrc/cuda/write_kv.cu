#include <climits>

#include "elements.h"
#include "entry.h"
#include "paged_cache.h"

namespace octavo::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLoadsInFlight = 2;

// Where the first element of a token's head goes: the key's head lies first, the value's num_kv_heads later.
__device__ int64_t head_in_pool(const octavo_cache &cache, int32_t layer, int64_t slot, int32_t head) {
    const int64_t block = slot / cache.block_size, offset = slot % cache.block_size;
    const int64_t heads = (block * cache.num_layers + layer) * 2 * cache.num_kv_heads + head;
    return (heads * cache.block_size + offset) * cache.head_size;
}

// One pack of a token's row of keys and the same of its values: both loads are under way before a store.
template <class T> __device__ void write_pack(const octavo_write_kv_params &params, int64_t token, int32_t channel) {
    const octavo_cache &cache = params.cache;
    const Pack<T> key = load(static_cast<const T *>(params.key) + token * params.key_stride + channel);
    const Pack<T> value = load(static_cast<const T *>(params.value) + token * params.value_stride + channel);
    const int32_t head = channel / cache.head_size, within = channel % cache.head_size;
    T *to = static_cast<T *>(cache.pool) + head_in_pool(cache, params.layer, params.slot_mapping[token], head) + within;
    store(to, key);
    store(to + int64_t{cache.num_kv_heads} * cache.block_size * cache.head_size, value);
}

// Grid: x the tokens, y parts of a token's row of kThreads * kLoadsInFlight packs.
template <class T> __global__ void __launch_bounds__(kThreads) write_kv(octavo_write_kv_params params) {
    const int32_t row_size = params.cache.num_kv_heads * params.cache.head_size;
    const int32_t first = (blockIdx.y * kThreads * kLoadsInFlight + threadIdx.x) * Pack<T>::kSize;
#pragma unroll
    for (int i = 0; i < kLoadsInFlight; ++i) {
        const int32_t channel = first + i * kThreads * Pack<T>::kSize;
        if (channel < row_size) write_pack<T>(params, blockIdx.x, channel);
    }
}

void check(const octavo_write_kv_params &params) {
    require_paged(params.cache, params.layer);
    require_range("num_tokens", params.num_tokens, 0, INT_MAX);
    require_pointer("key", params.key, params.num_tokens);
    require_pointer("value", params.value, params.num_tokens);
    require_pointer("slot_mapping", params.slot_mapping, params.num_tokens);
    require_multiple("key_stride", params.key_stride, 8);
    require_multiple("value_stride", params.value_stride, 8);
    require_aligned("key", params.key);
    require_aligned("value", params.value);
}

template <class T> void launch(const octavo_write_kv_params &params, cudaStream_t stream) {
    if (params.num_tokens == 0) return;
    const int64_t num_packs = int64_t{params.cache.num_kv_heads} * params.cache.head_size / Pack<T>::kSize;
    const int64_t num_parts = quotient_rounded_up(num_packs, kThreads * kLoadsInFlight);
    OCTAVO_LAUNCH(write_kv<T>, dim3(params.num_tokens, num_parts), dim3(kThreads), 0, stream, params);
    require(cudaGetLastError(), "launching write-kv");
}

} // namespace
} // namespace octavo::cuda

int32_t octavo_cuda_write_kv(octavo_write_kv_params params, octavo_cuda_stream stream) {
    using namespace octavo::cuda;
    return guarded([&] {
        octavo::cuda::check(params);
        with_element(params.cache.dtype, [&](auto element) { launch<decltype(element)>(params, stream_of(stream)); });
    });
}
