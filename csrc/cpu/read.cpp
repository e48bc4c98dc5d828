// Reads memory as fast as it comes: what the kernels' speed is measured against.
#include <cstddef>

#include "octavo.h"

namespace {

typedef uint64_t Words __attribute__((vector_size(32), may_alias));

constexpr int64_t kStretch = 256; // bytes that are read in one turn

} // namespace

uint64_t octavo_cpu_read(const void *memory, int64_t num_bytes) {
    const int64_t num_stretches = num_bytes / kStretch;
    uint64_t total = 0;
#pragma omp parallel reduction(^ : total)
    {
        Words sums[8] = {};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < num_stretches; ++i) {
            const Words *words = reinterpret_cast<const Words *>(static_cast<const char *>(memory) + i * kStretch);
            for (int k = 0; k < 8; ++k) sums[k] ^= words[k];
        }
        for (const Words &sum : sums) total ^= sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    }
    return total;
}
