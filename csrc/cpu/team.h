// What the threads of a step's parallel region share: even cuts of the work, a barrier, and clocks.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <ctime>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "octavo_step.h"

namespace octavo {

struct Range {
    int64_t first, last; // the last is excluded
};

// The part of `count` things that is `thread`'s.
inline Range share(int64_t count, int thread, int num_threads) {
    return {count * thread / num_threads, count * (thread + 1) / num_threads};
}

// Spins for a few microseconds, since a sleeping thread takes longer to wake than most waits last; then gives its core
// away, since the others may be waiting for that very one: spinning long made steps on a busy machine twice as slow.
class Barrier {
public:
    void wait(int num_threads) {
        const uint32_t round = round_.load(std::memory_order_acquire);
        if (num_arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads) {
            num_arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins)
            if (spins < kSpins)
                pause();
            else
                sched_yield();
    }

private:
    static constexpr int kSpins = 100;

    static void pause() {
#if defined(__x86_64__)
        _mm_pause();
#endif
    }

    alignas(64) std::atomic<uint32_t> round_{0};
    alignas(64) std::atomic<int> num_arrived_{0};
};

// One thread's time by phase.
class PhaseClock {
public:
    PhaseClock() : since_(ticks()) {}

    // Ends the phase in hand and returns it.
    octavo_phase enter(octavo_phase phase) {
        const uint64_t now = ticks();
        spent_[phase_] += now - since_;
        since_ = now;
        const octavo_phase before = phase_;
        phase_ = phase;
        return before;
    }

    // In shares of `total_ns`, which is how long all phases together took.
    void report(int64_t total_ns, int64_t *phase_ns) const {
        uint64_t total = 1;
        for (const uint64_t spent : spent_) total += spent;
        for (int phase = 0; phase < OCTAVO_NUM_PHASES; ++phase)
            phase_ns[phase] = static_cast<int64_t>(static_cast<double>(spent_[phase]) / static_cast<double>(total) *
                                                   static_cast<double>(total_ns));
    }

private:
    static uint64_t ticks() {
#if defined(__x86_64__)
        return __rdtsc();
#else
        timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
#endif
    }

    octavo_phase phase_ = OCTAVO_PHASE_NORMS;
    uint64_t since_;
    uint64_t spent_[OCTAVO_NUM_PHASES] = {};
};

} // namespace octavo
