// A kernel that is right when threads run in order, with or without its barriers. Without one of them the thread
// sanitizer must tell.
#include "emulated.h"

#if defined(NO_BARRIER)
#define BARRIER()
#else
#define BARRIER() __syncthreads()
#endif
#if defined(NO_BARRIER_OF_THE_WARP)
#define BARRIER_OF_THE_WARP()
#else
#define BARRIER_OF_THE_WARP() __syncwarp()
#endif

namespace {

constexpr int kThreads = 64;

// results[i] = i - 2, at least 0; lane 0 has its own i - 1. Each thread reads what the one before it wrote.
__global__ void pass_on_twice(int *results) {
    OCTAVO_SHARED(int, shared, 2 * kThreads);
    const int thread = static_cast<int>(threadIdx.x);
    shared[thread] = thread;
    BARRIER();
    const int passed = thread == 0 ? 0 : shared[thread - 1];
    shared[kThreads + thread] = passed;
    BARRIER_OF_THE_WARP();
    results[thread] = thread % warpSize == 0 ? passed : shared[kThreads + thread - 1];
}

} // namespace

int main() {
    octavo::emulation::set_order(octavo::emulation::Order::kInOrder, 0);
    std::vector<int> results(kThreads);
    OCTAVO_LAUNCH(pass_on_twice, dim3(1), dim3(kThreads), 0, nullptr, results.data());
    for (int i = 0; i < kThreads; ++i) REQUIRE(results[i] == std::max(i - (i % warpSize == 0 ? 1 : 2), 0));
    std::printf("results are right\n");
}
