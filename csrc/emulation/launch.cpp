#include "launch.h"

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "block.h"

namespace octavo::emulation {
namespace {

struct Settings {
    Order order = Order::kInOrder;
    std::mt19937_64 random{0};
};

thread_local Settings settings;
thread_local std::vector<std::unique_ptr<Fiber>> fibers; // kept from launch to launch
thread_local Block *running = nullptr;

Block &block() {
    if (running == nullptr) throw Fault("device code runs outside of a launch");
    return *running;
}

void require(bool condition, const std::string &what) {
    if (!condition) throw Fault("launch: " + what);
}

void check_launch(dim3 grid, dim3 block, size_t shared_bytes) {
    const size_t num_threads = size_t{block.x} * block.y * block.z;
    require(num_threads >= 1 && num_threads <= 1024, std::to_string(num_threads) + " threads a block, limit 1024");
    require(grid.x >= 1 && grid.y >= 1 && grid.z >= 1, "the grid is empty");
    require(grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535, "the grid is beyond 2^31-1 x 65535 x 65535");
    require(shared_bytes <= kMaxSharedBytes,
            std::to_string(shared_bytes) + " bytes of shared memory, limit " + std::to_string(kMaxSharedBytes));
}

} // namespace

void set_order(Order order, uint64_t seed) {
    settings.order = order;
    settings.random.seed(seed);
}

const Place &here() { return block().place(); }

void sync_block(const char *site) { block().sync(site); }

const LaneValue *exchange(const char *site, uint32_t mask, const LaneValue &mine) {
    return block().exchange(site, mask, mine);
}

void *shared_array(const char *site, size_t bytes) { return block().shared_array(site, bytes); }

void *dynamic_shared() { return block().dynamic_shared(); }

void start_copy(const char *site, void *destination, const void *source, size_t source_bytes) {
    block().start_copy(site, destination, source, source_bytes);
}

void commit_copies() { block().current().copies.commit(); }

void wait_copies(int num_pending) { block().current().copies.wait(num_pending); }

void fail(const char *site, const char *what) { block().fail(site, what); }

void launch(dim3 grid, dim3 block_dim, size_t shared_bytes, const std::function<void()> &kernel) {
    check_launch(grid, block_dim, shared_bytes);
    const size_t num_threads = size_t{block_dim.x} * block_dim.y * block_dim.z;
    while (fibers.size() < num_threads) fibers.push_back(std::make_unique<Fiber>());
    const uint64_t num_blocks = uint64_t{grid.x} * grid.y * grid.z;
    for (uint64_t i = 0; i < num_blocks; ++i) {
        const uint64_t id = settings.order == Order::kLastInFirstOut ? num_blocks - 1 - i : i;
        const dim3 index(id % grid.x, id / grid.x % grid.y, id / grid.x / grid.y);
        Block block({{}, index, block_dim, grid}, shared_bytes, kernel, settings.order, settings.random);
        running = &block;
        try {
            block.run(fibers);
        } catch (...) {
            running = nullptr;
            throw;
        }
        running = nullptr;
    }
}

} // namespace octavo::emulation
