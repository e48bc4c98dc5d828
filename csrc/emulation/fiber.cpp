#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#include "happens_before.h"

#if !defined(__x86_64__)
#error "the emulation switches stacks on x86-64 only"
#endif

// Saves the registers that a call preserves, stores the stack pointer, and continues on another stack.
extern "C" void octavo_switch_stack(void **save, void *load);
asm(R"(
.text
.type octavo_switch_stack, @function
octavo_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size octavo_switch_stack, .-octavo_switch_stack
)");

namespace octavo::emulation {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(OCTAVO_FIND_RACES)
constexpr size_t kStackBytes = 256 << 10;
#else
constexpr size_t kStackBytes = 64 << 10;
#endif
constexpr size_t kGuardBytes = 4096; // below the stack: running over is a fault, not corruption

thread_local Fiber *starting = nullptr;

} // namespace

Fiber::Fiber() : traced_inner_(create_traced_fiber()) {
    void *memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuardBytes, PROT_NONE);
    stack_ = static_cast<char *>(memory) + kGuardBytes;
}

Fiber::~Fiber() {
    destroy_traced_fiber(traced_inner_);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
    munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

void Fiber::prepare(void (*entry)(void *), void *argument) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
    entry_ = entry;
    argument_ = argument;
    inner_shadow_ = nullptr;
    // Six registers, then the address that the switch returns to, then a return address that nobody uses.
    auto *top = reinterpret_cast<uintptr_t *>(stack_ + kStackBytes);
    for (int i = 1; i <= 8; ++i) top[-i] = 0;
    top[-2] = reinterpret_cast<uintptr_t>(&Fiber::begin);
    inner_ = top - 8;
}

void Fiber::resume() {
    starting = this;
    switch_in();
}

void Fiber::suspend() { switch_out(false); }

void Fiber::begin() {
    Fiber *self = starting;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &self->outer_bottom_, &self->outer_size_);
#endif
    self->entry_(self->argument_);
    self->switch_out(true);
}

void Fiber::switch_in() {
    traced_outer_ = running_traced_fiber();
    switch_traced_fiber(traced_inner_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&outer_shadow_, stack_, kStackBytes);
#endif
    octavo_switch_stack(&outer_, inner_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(outer_shadow_, nullptr, nullptr);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool for_good) {
    switch_traced_fiber(traced_outer_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &inner_shadow_, outer_bottom_, outer_size_);
#endif
    octavo_switch_stack(&inner_, outer_);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(inner_shadow_, &outer_bottom_, &outer_size_);
#endif
}

} // namespace octavo::emulation
