// One block of an emulated launch: its threads, who waits for whom, and its shared memory.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fiber.h"
#include "launch.h"

namespace octavo::emulation {

constexpr size_t kMaxSharedBytes = 163 << 10; // of sm_80

// The asynchronous copies of one thread. They are carried out at once or only when they are waited for: memory that is
// read too early, or written while others still read it, shows in one of the two.
class AsyncCopies {
public:
    void start(void *destination, const void *source, size_t source_bytes, bool at_once);
    void commit() { ++num_committed_; }
    void wait(int num_pending);

private:
    struct Copy {
        void *destination;
        const void *source;
        size_t source_bytes; // the rest of 16 is zeros
        int group;
    };
    static void carry_out(const Copy &copy);

    std::vector<Copy> copies_;
    int num_committed_ = 0;
};

struct Thread {
    enum class State { kReady, kAtBarrier, kInExchange, kLeft };
    State state = State::kReady;
    const char *site = nullptr;              // where it waits
    uint32_t mask = 0;                       // for which lanes it waits in an exchange
    LaneValue shown;                         // what it showed
    std::shared_ptr<const LaneValue[]> seen; // what the others showed, by lane
    Place place;
    AsyncCopies copies;
    Fiber *fiber = nullptr;
};

class Block {
public:
    Block(const Place &place, size_t shared_bytes, const std::function<void()> &kernel, Order order,
          std::mt19937_64 &random);

    // Runs all threads to their end. Throws Fault.
    void run(const std::vector<std::unique_ptr<Fiber>> &fibers);

    // Called by the thread that runs.
    Thread &current() { return threads_[current_]; }
    void start_copy(const char *site, void *destination, const void *source, size_t source_bytes);
    const Place &place() { return current().place; }
    void sync(const char *site);
    const LaneValue *exchange(const char *site, uint32_t mask, const LaneValue &mine);
    void *shared_array(const char *site, size_t bytes);
    void *dynamic_shared() { return dynamic_shared_.get(); }
    [[noreturn]] void fail(const char *site, const std::string &what);

private:
    using Memory = std::unique_ptr<unsigned char[], void (*)(unsigned char *)>;
    struct SharedArray {
        const char *site;
        size_t bytes;
        Memory memory;
    };
    static Memory allocate(size_t bytes);
    static void enter(void *self);

    bool pick();
    void wait(Thread::State state, const char *site);
    void release_barrier();
    void release_exchange(uint32_t first_of_warp, uint32_t mask);
    void draw_priorities();
    void report_deadlock();
    std::string where() const;

    const std::function<void()> &kernel_;
    Order order_;
    std::mt19937_64 &random_;
    std::vector<Thread> threads_;
    std::vector<uint32_t> ready_;  // by warp: its lanes that could run
    std::vector<size_t> priority_; // warps, first to run first
    int rotation_ = 0;             // the lane to look at first
    size_t current_ = 0;
    size_t num_at_barrier_ = 0;
    uint64_t num_barriers_ = 0; // that all threads have reached
    // Addresses that stand for what orders accesses.
    char arrivals_ = 0, barriers_[2] = {}, ended_ = 0;
    std::vector<SharedArray> arrays_;
    Memory dynamic_shared_;
    std::exception_ptr error_;
};

} // namespace octavo::emulation
