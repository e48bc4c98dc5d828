// A stack of its own and two switches: how one CUDA thread waits while another runs. x86-64 only.
#pragma once

#include <cstddef>

namespace octavo::emulation {

// Runs a function on its own stack; it gives control back by suspend() and ends by returning. Used by one OS thread.
class Fiber {
public:
    Fiber();
    ~Fiber();
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;

    // Makes the next resume() call entry(argument). What ran before and did not return is forgotten, without unwinding.
    void prepare(void (*entry)(void *), void *argument);
    void resume();  // from outside: runs until suspend() or the end
    void suspend(); // from inside: returns from resume()

private:
    static void begin();
    void switch_in();
    void switch_out(bool for_good);

    char *stack_;
    void *inner_ = nullptr; // stack pointer while suspended
    void *outer_ = nullptr; // stack pointer of the one who resumed
    void (*entry_)(void *) = nullptr;
    void *argument_ = nullptr;
    // What the address sanitizer wants to know of either stack.
    void *inner_shadow_ = nullptr;
    void *outer_shadow_ = nullptr;
    const void *outer_bottom_ = nullptr;
    size_t outer_size_ = 0;
    // Either fiber as the thread sanitizer knows it.
    void *traced_inner_;
    void *traced_outer_ = nullptr;
};

} // namespace octavo::emulation
