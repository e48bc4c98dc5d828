// Memory whose address is a multiple of a cache line's 64 bytes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace octavo {

class AlignedMemory {
public:
    // Throws std::bad_alloc.
    explicit AlignedMemory(int64_t num_bytes) {
        void *memory = nullptr;
        if (posix_memalign(&memory, 64, static_cast<std::size_t>(num_bytes)) != 0) throw std::bad_alloc();
        memory_.reset(static_cast<char *>(memory));
    }

    char *get() const { return memory_.get(); }

private:
    struct FreeDeleter {
        void operator()(char *memory) const { std::free(memory); }
    };

    std::unique_ptr<char, FreeDeleter> memory_;
};

} // namespace octavo
