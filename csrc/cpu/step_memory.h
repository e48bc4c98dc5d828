// Memory that steps work in; it grows to the largest step so far and is then reused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace octavo {

// Aligned to cache lines. Growing loses the content.
class GrowingMemory {
public:
    // Throws std::bad_alloc.
    void reserve(int64_t num_bytes) {
        if (num_bytes <= num_bytes_) return;
        memory_.reset();
        num_bytes_ = 0;
        const int64_t rounded = std::max(num_bytes + num_bytes / 4, int64_t{64});
        void *memory = nullptr;
        if (posix_memalign(&memory, kAlignment, static_cast<std::size_t>(rounded)) != 0) throw std::bad_alloc();
        memory_.reset(static_cast<char *>(memory));
        num_bytes_ = rounded;
    }

    char *get() const { return memory_.get(); }

private:
    struct FreeDeleter {
        void operator()(char *memory) const { std::free(memory); }
    };

    static constexpr std::size_t kAlignment = 64;

    std::unique_ptr<char, FreeDeleter> memory_;
    int64_t num_bytes_ = 0;
};

// Hands out aligned parts of one piece of memory; with a null piece it only counts.
class Carver {
public:
    explicit Carver(char *memory) : memory_(memory) {}

    template <class Element> Element *take(int64_t count) {
        Element *part = memory_ == nullptr ? nullptr : reinterpret_cast<Element *>(memory_ + taken_);
        taken_ += (count * static_cast<int64_t>(sizeof(Element)) + 63) / 64 * 64;
        return part;
    }

    int64_t taken() const { return taken_; }

private:
    char *memory_;
    int64_t taken_ = 0;
};

} // namespace octavo
