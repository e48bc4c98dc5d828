// The runtime under emulated kernels: launches, barriers, exchanges between lanes and shared memory.
//
// A launch runs its blocks one after the other and the threads of a block as fibers that give way only where they wait
// for each other. What breaks CUDA's rules (a barrier or shuffle that not every named thread reaches, a shuffle from an
// absent lane, limits of a launch) is a Fault that names the place; memory errors are left to the sanitizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace octavo::emulation {

constexpr int kWarpSize = 32;

class Fault : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Who goes first among the threads that could run. A result that depends on it lacks a barrier.
enum class Order {
    kInOrder = 0,        // first warp, first lane
    kLastInFirstOut = 1, // last warp, last lane
    kRandomWarps = 2,    // warps by random priorities, drawn anew at each barrier; lanes from a random one on
};

// From the next launch of this thread on.
void set_order(Order order, uint64_t seed);

struct Place {
    dim3 thread, block, block_dim, grid_dim;
};
const Place &here();

// What a lane shows to the others: up to a fragment of a matrix.
struct alignas(16) LaneValue {
    unsigned char bytes[32];
};

void sync_block(const char *site);

// Waits for all lanes of `mask` and gives what they showed, by lane. Valid until this lane's next exchange.
const LaneValue *exchange(const char *site, uint32_t mask, const LaneValue &mine);

// Memory shared by the block: the same for the same site and size, of exactly this size, NaN at first.
void *shared_array(const char *site, size_t bytes);
void *dynamic_shared();

// An asynchronous copy of 16 bytes, of which `source_bytes` are read and the rest are zeros. It happens at once or when
// wait_copies() asks for it, as the order has it.
void start_copy(const char *site, void *destination, const void *source, size_t source_bytes);
void commit_copies();
void wait_copies(int num_pending);

[[noreturn]] void fail(const char *site, const char *what);

// Throws Fault.
void launch(dim3 grid, dim3 block, size_t shared_bytes, const std::function<void()> &kernel);

} // namespace octavo::emulation
