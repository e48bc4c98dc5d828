// The emulation finds what it promises to find, in kernels that are wrong on purpose, and runs right ones.
#include "runtime.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <functional>
#include <string>
#include <vector>

#include "require.h"

namespace {

using octavo::emulation::Fault;
using octavo::emulation::Order;
using octavo::emulation::set_order;

constexpr unsigned kAll = 0xffffffffu;

// Grid: one block a row. Every warp sums the row; without the barrier some sum what others did not write yet.
template <bool kWithBarrier> __global__ void sum_rows(const float *rows, float *sums) {
    OCTAVO_SHARED(float, values, 128);
    values[threadIdx.x] = rows[blockIdx.x * 128 + threadIdx.x];
    if (kWithBarrier) __syncthreads();
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += values[(threadIdx.x + 32 * i) % 128];
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(kAll, sum, distance);
    if (threadIdx.x % 32 == 0) sums[blockIdx.x * 4 + threadIdx.x / 32] = sum;
}

template <bool kWithBarrier> bool sums_are_right() {
    const std::vector<float> rows(3 * 128, 2.0f);
    std::vector<float> sums(3 * 4);
    OCTAVO_LAUNCH(sum_rows<kWithBarrier>, dim3(3), dim3(128), 0, cudaStream_t{}, rows.data(), sums.data());
    return sums == std::vector<float>(3 * 4, 256.0f);
}

void a_missing_barrier_is_found_in_every_order() {
    set_order(Order::kInOrder, 0);
    REQUIRE(sums_are_right<true>());
    REQUIRE(!sums_are_right<false>());
    set_order(Order::kLastInFirstOut, 0);
    REQUIRE(sums_are_right<true>());
    REQUIRE(!sums_are_right<false>());
    for (int seed = 0; seed < 10; ++seed) {
        set_order(Order::kRandomWarps, seed);
        REQUIRE(sums_are_right<true>());
        REQUIRE(!sums_are_right<false>());
    }
    set_order(Order::kInOrder, 0);
}

__global__ void half_of_the_threads_wait() {
    if (threadIdx.x < 32) __syncthreads();
}

__global__ void threads_wait_at_two_barriers() {
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void some_lanes_miss_a_shuffle(int *output) {
    if (threadIdx.x < 20) output[threadIdx.x] = __shfl_xor_sync(kAll, int(threadIdx.x), 1);
}

__global__ void a_lane_outside_of_the_mask_is_read(int *output) {
    if (threadIdx.x < 16) output[threadIdx.x] = __shfl_sync(0xffffu, int(threadIdx.x), 20);
}

// The message of the fault that a launch ends in, empty if in none.
std::string fault_of(const std::function<void()> &launch) {
    try {
        launch();
    } catch (const Fault &fault) {
        return fault.what();
    }
    return {};
}

bool reports(const std::string &what, const std::function<void()> &launch) {
    const std::string fault = fault_of(launch);
    return fault.find(what) != std::string::npos && fault.find("emulation_test.cpp:") != std::string::npos;
}

void rules_that_are_broken_are_reported_with_their_place() {
    const cudaStream_t stream{};
    std::vector<int> output(64);
    int *out = output.data();
    REQUIRE(reports("divergent barrier: 32 threads have left",
                    [&] { OCTAVO_LAUNCH(half_of_the_threads_wait, dim3(1), dim3(64), 0, stream); }));
    REQUIRE(reports("divergent barrier: others wait at",
                    [&] { OCTAVO_LAUNCH(threads_wait_at_two_barriers, dim3(1), dim3(64), 0, stream); }));
    REQUIRE(
        reports("absent lanes", [&] { OCTAVO_LAUNCH(some_lanes_miss_a_shuffle, dim3(1), dim3(32), 0, stream, out); }));
    REQUIRE(reports("shuffle from an absent lane",
                    [&] { OCTAVO_LAUNCH(a_lane_outside_of_the_mask_is_read, dim3(1), dim3(32), 0, stream, out); }));
    REQUIRE(fault_of([&] {
                OCTAVO_LAUNCH(half_of_the_threads_wait, dim3(1, 70000), dim3(64), 0, stream);
            }).find("the grid is beyond") != std::string::npos);
    REQUIRE(sums_are_right<true>()); // a fault leaves nothing behind
}

// Grid: one block. Shared memory starts as NaN in every block.
__global__ void read_unwritten(float *output) {
    OCTAVO_DYNAMIC_SHARED(float, values);
    if (threadIdx.x == 0) output[blockIdx.x] = values[7];
    values[threadIdx.x] = 1;
}

void shared_memory_is_new_in_every_block() {
    std::vector<float> output(2);
    OCTAVO_LAUNCH(read_unwritten, dim3(2), dim3(32), 32 * sizeof(float), cudaStream_t{}, output.data());
    REQUIRE(std::isnan(output[0]) && std::isnan(output[1]));
}

__global__ void count(int *total, uint32_t *even) {
    atomicAdd(total, 1);
    const uint32_t lanes = __ballot_sync(kAll, threadIdx.x % 2 == 0);
    const int before = __shfl_up_sync(kAll, int(threadIdx.x), 1), after = __shfl_down_sync(kAll, int(threadIdx.x), 1);
    if (threadIdx.x == 5 && before == 4 && after == 6) *even = lanes;
}

void lanes_see_each_other() {
    int total = 0;
    uint32_t even = 0;
    OCTAVO_LAUNCH(count, dim3(2), dim3(32), 0, cudaStream_t{}, &total, &even);
    REQUIRE(total == 64 && even == 0x55555555u);
}

void sixteen_bit_elements_round_to_nearest_even() {
    REQUIRE(__bfloat162float(__float2bfloat16_rn(1.00390625f)) == 1.0f); // half way: down to even
    REQUIRE(__bfloat162float(__float2bfloat16_rn(1.01171875f)) == 1.015625f);
    for (uint32_t bits = 0; bits < 0x7c00; ++bits) { // every finite half survives the way through float
        const __half x = {static_cast<uint16_t>(bits)};
        REQUIRE(__float2half_rn(__half2float(x)).bits == bits);
    }
    REQUIRE(__half2float({0x3c00}) == 1.0f && __half2float({0x0001}) == 0x1p-24f);
    REQUIRE(__float2half_rn(1.00048828125f).bits == 0x3c00 && __float2half_rn(65520.0f).bits == 0x7c00);
    REQUIRE(std::isnan(__half2float({0xffff})) && std::isnan(__bfloat162float({0xffff})));
}

} // namespace

int main() {
    a_missing_barrier_is_found_in_every_order();
    rules_that_are_broken_are_reported_with_their_place();
    shared_memory_is_new_in_every_block();
    lanes_see_each_other();
    sixteen_bit_elements_round_to_nearest_even();
}
