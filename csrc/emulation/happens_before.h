// What the thread sanitizer is told of the emulation, whose fibers all run on one thread of the system: which of them
// runs, and what orders the accesses of one before those of another. Nothing else does, so what two CUDA threads do to
// the same memory without a barrier between is a race, whatever order they happen to run in.
//
// Without OCTAVO_FIND_RACES these do nothing. The emulation itself is built without the sanitizer: its own data are
// handed from fiber to fiber without any of this.
#pragma once

#if defined(OCTAVO_FIND_RACES)

extern "C" {
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void *__tsan_get_current_fiber();
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *address);
void __tsan_release(void *address);
}

namespace octavo::emulation {

inline void *create_traced_fiber() { return __tsan_create_fiber(0); }
inline void destroy_traced_fiber(void *fiber) { __tsan_destroy_fiber(fiber); }
inline void *running_traced_fiber() { return __tsan_get_current_fiber(); }

inline void switch_traced_fiber(void *fiber) {
    constexpr unsigned kNoSync = 1; // a switch orders nothing
    __tsan_switch_to_fiber(fiber, kNoSync);
}

// What was done before a release of an address comes before what is done after an acquisition that follows it.
inline void release(const void *address) { __tsan_release(const_cast<void *>(address)); }
inline void acquire(const void *address) { __tsan_acquire(const_cast<void *>(address)); }

} // namespace octavo::emulation

#else

namespace octavo::emulation {

inline void *create_traced_fiber() { return nullptr; }
inline void destroy_traced_fiber(void *) {}
inline void *running_traced_fiber() { return nullptr; }
inline void switch_traced_fiber(void *) {}
inline void release(const void *) {}
inline void acquire(const void *) {}

} // namespace octavo::emulation

#endif
