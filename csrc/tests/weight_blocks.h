// Random rows of every weight format, and what they say, decoded on their own terms: value by value, in double, after
// the formats' description and without any code of the library.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "octavo_product.h"

namespace octavo_test {

struct FormatBlock {
    int inputs, bytes;
};

inline FormatBlock block_of(int32_t format) {
    switch (format) {
    case OCTAVO_WEIGHT_FLOAT32:
        return {1, 4};
    case OCTAVO_WEIGHT_BFLOAT16:
        return {1, 2};
    case OCTAVO_WEIGHT_Q8_0:
        return {32, 34};
    case OCTAVO_WEIGHT_Q4_0:
        return {32, 18};
    case OCTAVO_WEIGHT_Q4_1:
        return {32, 20};
    case OCTAVO_WEIGHT_Q4_K:
        return {256, 144};
    default:
        return {256, 210};
    }
}

inline double half_at(const uint8_t *from) {
    const int bits = from[0] | from[1] << 8;
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
}

inline int six_bit_scale(const uint8_t *scales, int group, bool minimum) {
    if (group < 4) return scales[group + 4 * minimum] % 64;
    const int low = minimum ? scales[group + 4] / 16 : scales[group + 4] % 16;
    return low + 16 * (scales[group - 4 + 4 * minimum] / 64);
}

// Value i of a block.
inline double value_at(int32_t format, const uint8_t *block, int i) {
    switch (format) {
    case OCTAVO_WEIGHT_FLOAT32: {
        float value;
        std::memcpy(&value, block, 4);
        return value;
    }
    case OCTAVO_WEIGHT_BFLOAT16: {
        const uint32_t bits = uint32_t{block[0]} << 16 | uint32_t{block[1]} << 24;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
    }
    case OCTAVO_WEIGHT_Q8_0:
        return half_at(block) * static_cast<int8_t>(block[2 + i]);
    case OCTAVO_WEIGHT_Q4_0:
        return half_at(block) * (block[2 + i % 16] / (i < 16 ? 1 : 16) % 16 - 8);
    case OCTAVO_WEIGHT_Q4_1:
        return half_at(block) * (block[4 + i % 16] / (i < 16 ? 1 : 16) % 16) + half_at(block + 2);
    case OCTAVO_WEIGHT_Q4_K: {
        const int group = i / 32, nibble = block[16 + group / 2 * 32 + i % 32] / (group % 2 == 0 ? 1 : 16) % 16;
        return half_at(block) * six_bit_scale(block + 4, group, false) * nibble -
               half_at(block + 2) * six_bit_scale(block + 4, group, true);
    }
    default: {
        const int half = i / 128, part = i % 128 / 32, at = i % 32;
        const int low = block[half * 64 + part % 2 * 32 + at] / (part < 2 ? 1 : 16) % 16;
        const int high = block[128 + half * 32 + at] >> 2 * part & 3;
        return half_at(block + 208) * static_cast<int8_t>(block[192 + i / 16]) * (low + 16 * high - 32);
    }
    }
}

// [num_outputs][num_inputs] of a format, and the same as double.
struct RandomWeights {
    RandomWeights(int32_t format, int64_t num_outputs, int64_t num_inputs, unsigned seed) {
        const FormatBlock block = block_of(format);
        std::mt19937 random(seed);
        rows.resize(static_cast<std::size_t>(num_outputs * (num_inputs / block.inputs) * block.bytes));
        for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(block.bytes)) {
            fill(format, rows.data() + at, block.bytes, random);
            for (int i = 0; i < block.inputs; ++i) values.push_back(value_at(format, rows.data() + at, i));
        }
    }

    std::vector<uint8_t> rows;
    std::vector<double> values;

private:
    // Any bits are a block but for its scales, which must be finite: of either sign, about 2^-6, some subnormal or 0.
    static void fill(int32_t format, uint8_t *block, int num_bytes, std::mt19937 &random) {
        for (int i = 0; i < num_bytes; ++i) block[i] = static_cast<uint8_t>(random());
        const auto scale_at = [&](int place) {
            const unsigned exponent = random() % 16 == 0 ? random() % 2 : 8 + random() % 3;
            block[place + 1] = static_cast<uint8_t>((block[place + 1] & 0x83) | exponent << 2);
        };
        if (format == OCTAVO_WEIGHT_FLOAT32 || format == OCTAVO_WEIGHT_BFLOAT16) {
            block[num_bytes - 1] = static_cast<uint8_t>((block[num_bytes - 1] & 0x80) | 0x3d);
            return;
        }
        scale_at(format == OCTAVO_WEIGHT_Q6_K ? 208 : 0);
        if (format == OCTAVO_WEIGHT_Q4_1 || format == OCTAVO_WEIGHT_Q4_K) scale_at(2);
    }
};

} // namespace octavo_test
