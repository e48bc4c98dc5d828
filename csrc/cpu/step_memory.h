// Memory that steps work in; it grows to the largest step so far and is then reused.
#pragma once

#include <algorithm>
#include <cstdint>

#include "aligned_memory.h"

namespace octavo {

// Aligned to cache lines. Growing loses the content.
class GrowingMemory {
public:
    // Throws std::bad_alloc.
    void reserve(int64_t num_bytes) {
        if (num_bytes <= num_bytes_) return;
        memory_ = {};
        num_bytes_ = 0;
        const int64_t rounded = std::max(num_bytes + num_bytes / 4, kCacheLineBytes);
        memory_ = AlignedMemory(rounded);
        num_bytes_ = rounded;
    }

    char *get() const { return memory_.get(); }

private:
    AlignedMemory memory_;
    int64_t num_bytes_ = 0;
};

} // namespace octavo
