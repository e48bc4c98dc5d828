// Philox-4x32-10 (Salmon et al., 2011), as in services/gpuworker/philox.py: a number is a function of key and counter.
// For the CPU and for CUDA.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define OCTAVO_EVERYWHERE __host__ __device__
#else
#define OCTAVO_EVERYWHERE
#endif

namespace octavo {

struct PhiloxWords {
    uint32_t words[4];
};

OCTAVO_EVERYWHERE inline PhiloxWords philox_round(const PhiloxWords &counter, uint32_t key0, uint32_t key1) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter.words[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter.words[2];
    return {{static_cast<uint32_t>(product1 >> 32) ^ counter.words[1] ^ key0, static_cast<uint32_t>(product1),
             static_cast<uint32_t>(product0 >> 32) ^ counter.words[3] ^ key1, static_cast<uint32_t>(product0)}};
}

OCTAVO_EVERYWHERE inline PhiloxWords philox4x32(PhiloxWords counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; ++round) {
        counter = philox_round(counter, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

// 52 random bits: over 2^52 the number in [0, 1) of `philox.uniform`.
OCTAVO_EVERYWHERE inline uint64_t random_bits52(uint64_t seed, uint32_t choice_index, uint32_t position) {
    const PhiloxWords drawn =
        philox4x32({{position, choice_index, 0, 0}}, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    return uint64_t{drawn.words[0]} << 20 | drawn.words[1] >> 12;
}

} // namespace octavo
