// Memory that begins with a cache line, whole or in parts that do too.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace octavo {

constexpr int64_t kCacheLineBytes = 64;

class AlignedMemory {
public:
    AlignedMemory() = default;

    // Throws std::bad_alloc.
    explicit AlignedMemory(int64_t num_bytes) {
        void *memory = nullptr;
        if (posix_memalign(&memory, kCacheLineBytes, static_cast<std::size_t>(num_bytes)) != 0) throw std::bad_alloc();
        memory_.reset(static_cast<char *>(memory));
    }

    char *get() const { return memory_.get(); }

private:
    struct FreeDeleter {
        void operator()(char *memory) const { std::free(memory); }
    };

    std::unique_ptr<char, FreeDeleter> memory_;
};

// Hands out parts of one piece of memory, each from a cache line on; with a null piece it only counts.
class Carver {
public:
    explicit Carver(char *memory) : memory_(memory) {}

    template <class Element> Element *take(int64_t count) {
        Element *part = memory_ == nullptr ? nullptr : reinterpret_cast<Element *>(memory_ + taken_);
        const int64_t num_bytes = count * static_cast<int64_t>(sizeof(Element));
        taken_ += (num_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
        return part;
    }

    // Bytes of all parts.
    int64_t taken() const { return taken_; }

private:
    char *memory_;
    int64_t taken_ = 0;
};

} // namespace octavo
