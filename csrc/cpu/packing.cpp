// From a file's rows to panels, and back for single rows. Values are moved, never computed anew.
#include "product.h"

#include <cstring>

#include "float16.h"

namespace octavo {
namespace {

using Bytes = const uint8_t *;

// ---------------------------------------------------------------- what a file's block holds

// Bytes of a row's block in the file.
constexpr int file_bytes(Float32Group) { return 4; }
constexpr int file_bytes(BFloat16Group) { return 4; }
constexpr int file_bytes(Q8_0Group) { return 34; }
constexpr int file_bytes(Q4_0Group) { return 18; }
constexpr int file_bytes(Q4_1Group) { return 20; }
constexpr int file_bytes(Q4_KGroup) { return 144; }
constexpr int file_bytes(Q6_KGroup) { return 210; }

// Inputs 0..15 are the low nibbles, 16..31 the high ones.
void read_nibbles(Bytes from, uint8_t *values) {
    for (int i = 0; i < 16; ++i) {
        values[i] = from[i] & 15;
        values[i + 16] = from[i] >> 4;
    }
}

// Scale and minimum of 32 inputs, six bits each; the last four groups keep their two high bits with the first four.
void read_scale_and_minimum(Bytes packed, int group, uint8_t *scale, uint8_t *minimum) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *minimum = packed[group + 4] & 63;
        return;
    }
    *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6 << 4);
    *minimum = (packed[group + 4] >> 4) | (packed[group] >> 6 << 4);
}

// ---------------------------------------------------------------- one output's part of a block

// Field f of row t is value f * num_rows + t.
template <int bits> void put_fields(const uint8_t *values, uint8_t *words) {
    constexpr int kFields = 32 / bits, kRows = 32 / kFields;
    for (int t = 0; t < kRows; ++t) {
        uint32_t word = 0;
        for (int f = 0; f < kFields; ++f) word |= uint32_t{values[f * kRows + t]} << bits * f;
        std::memcpy(words + t * kWordsBytes, &word, sizeof word);
    }
}

// `to` is the block of the panel; `output` counts within the panel.
void put(Float32Group, Bytes block, uint8_t *to, int output) { std::memcpy(to + 4 * output, block, 4); }

void put(BFloat16Group, Bytes block, uint8_t *to, int output) { std::memcpy(to + 4 * output, block, 4); }

void put(Q8_0Group group, Bytes block, uint8_t *to, int output) {
    uint8_t values[32];
    for (int i = 0; i < 32; ++i) values[i] = block[2 + i] ^ 0x80;
    std::memcpy(to + group.kScales + 2 * output, block, 2);
    put_fields<8>(values, to + group.kWords + 4 * output);
}

void put(Q4_0Group group, Bytes block, uint8_t *to, int output) {
    uint8_t values[32];
    read_nibbles(block + 2, values);
    std::memcpy(to + group.kScales + 2 * output, block, 2);
    put_fields<4>(values, to + group.kWords + 4 * output);
}

void put(Q4_1Group group, Bytes block, uint8_t *to, int output) {
    uint8_t values[32];
    read_nibbles(block + 4, values);
    std::memcpy(to + group.kScales + 2 * output, block, 2);
    std::memcpy(to + group.kMinima + 2 * output, block + 2, 2);
    put_fields<4>(values, to + group.kWords + 4 * output);
}

void put(Q4_KGroup group, Bytes block, uint8_t *to, int output) {
    std::memcpy(to + group.kBlockScales + 2 * output, block, 2);
    std::memcpy(to + group.kBlockMinima + 2 * output, block + 2, 2);
    to += group.kBlockHeader;
    for (int g = 0; g < group.kPerBlock; ++g, to += group.kBytes) {
        read_scale_and_minimum(block + 4, g, to + group.kScales + output, to + group.kMinima + output);
        uint8_t values[32];
        for (int i = 0; i < 32; ++i) values[i] = block[16 + g / 2 * 32 + i] >> g % 2 * 4 & 15;
        put_fields<4>(values, to + group.kWords + 4 * output);
    }
}

// Groups g and g + 2 of a half share 32 bytes of nibbles; the four groups of a half share 32 bytes of pairs.
void put(Q6_KGroup group, Bytes block, uint8_t *to, int output) {
    std::memcpy(to + group.kBlockScales + 2 * output, block + 208, 2);
    to += group.kBlockHeader;
    for (int g = 0; g < group.kPerBlock; ++g, to += group.kBytes) {
        Bytes nibbles = block + g / 4 * 64 + g % 2 * 32;
        Bytes pairs = block + 128 + g / 4 * 32;
        uint8_t low[32];
        uint32_t high[2] = {};
        for (int i = 0; i < 32; ++i) {
            low[i] = nibbles[i] >> g % 4 / 2 * 4 & 15;
            const uint32_t pair = pairs[i] >> g % 4 * 2 & 3;
            high[i % 4 / 2] |= pair << (i / 4 * 4 + i % 2 * 2);
        }
        for (int part = 0; part < 2; ++part) {
            to[group.kScales + part * kPanel + output] = block[192 + 2 * g + part];
            std::memcpy(to + group.kPairs + part * kWordsBytes + 4 * output, &high[part], 4);
        }
        put_fields<4>(low, to + group.kWords + 4 * output);
    }
}

template <class Group>
void pack_rows(Group group, Bytes rows, int64_t num_outputs, int64_t num_inputs, uint8_t *packed) {
    const int64_t num_blocks = num_inputs / block_inputs<Group>();
    const int64_t row_bytes = num_blocks * file_bytes(group);
    for (int64_t output = 0; output < num_outputs; ++output) {
        uint8_t *panel = packed + output / kPanel * panel_bytes<Group>(num_inputs);
        for (int64_t i = 0; i < num_blocks; ++i)
            put(group, rows + output * row_bytes + i * file_bytes(group), panel + i * block_bytes<Group>(),
                static_cast<int>(output % kPanel));
    }
}

// The only format whose block in memory is more than one input, while a row may hold any number.
void pack_rows(BFloat16Group group, Bytes rows, int64_t num_outputs, int64_t num_inputs, uint8_t *packed) {
    const int64_t num_blocks = (num_inputs + 1) / 2;
    for (int64_t output = 0; output < num_outputs; ++output) {
        uint8_t *panel = packed + output / kPanel * panel_bytes<BFloat16Group>(num_inputs);
        for (int64_t i = 0; i < num_blocks; ++i) {
            uint8_t block[4] = {};
            std::memcpy(block, rows + (output * num_inputs + 2 * i) * 2, 2 * i + 1 < num_inputs ? 4 : 2);
            put(group, block, panel + i * block_bytes<BFloat16Group>(), static_cast<int>(output % kPanel));
        }
    }
}

// ---------------------------------------------------------------- single weights

float widen_half(Bytes from) {
    float16 half;
    std::memcpy(&half, from, sizeof half);
    return widen(half);
}

uint32_t word_at(Bytes from) {
    uint32_t word;
    std::memcpy(&word, from, sizeof word);
    return word;
}

template <int bits> float field(Bytes words, int input) {
    constexpr int kRows = bits; // 32 values in words of 32 / bits
    return static_cast<float>(word_at(words + input % kRows * kWordsBytes) >> input / kRows * bits &
                              ((1u << bits) - 1));
}

// Weight `input` of a group of the block; the pointers are to the place of an output.
float weight(Float32Group, Bytes block, int output, int) {
    float value;
    std::memcpy(&value, block + 4 * output, sizeof value);
    return value;
}

float weight(BFloat16Group, Bytes block, int output, int input) {
    const uint32_t word = word_at(block + 4 * output);
    const uint32_t bits = input == 0 ? word << 16 : word & 0xffff0000u;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

float weight(Q8_0Group group, Bytes block, int output, int input) {
    return widen_half(block + group.kScales + 2 * output) *
           (field<8>(block + group.kWords + 4 * output, input) - 128.0f);
}

float weight(Q4_0Group group, Bytes block, int output, int input) {
    return widen_half(block + group.kScales + 2 * output) * (field<4>(block + group.kWords + 4 * output, input) - 8.0f);
}

float weight(Q4_1Group group, Bytes block, int output, int input) {
    return widen_half(block + group.kScales + 2 * output) * field<4>(block + group.kWords + 4 * output, input) +
           widen_half(block + group.kMinima + 2 * output);
}

float weight(Q4_KGroup group, Bytes block, int output, int input) {
    Bytes part = block + group.kBlockHeader + input / 32 * group.kBytes;
    const float scale = widen_half(block + group.kBlockScales + 2 * output) * part[group.kScales + output];
    const float minimum = widen_half(block + group.kBlockMinima + 2 * output) * part[group.kMinima + output];
    return scale * field<4>(part + group.kWords + 4 * output, input % 32) - minimum;
}

float weight(Q6_KGroup group, Bytes block, int output, int input) {
    Bytes part = block + group.kBlockHeader + input / 32 * group.kBytes;
    const int i = input % 32;
    const int8_t scale = static_cast<int8_t>(part[group.kScales + i / 16 * kPanel + output]);
    const uint32_t pairs = word_at(part + group.kPairs + i % 4 / 2 * kWordsBytes + 4 * output);
    const float high = static_cast<float>(pairs >> (i / 4 * 4 + i % 2 * 2) & 3);
    return widen_half(block + group.kBlockScales + 2 * output) * scale *
           (field<4>(part + group.kWords + 4 * output, i) + 16.0f * high - 32.0f);
}

} // namespace

int inputs_per_block(int32_t format) {
    if (format == OCTAVO_WEIGHT_BFLOAT16) return 1;
    return with_group<int>(format, [](auto group) { return block_inputs<decltype(group)>(); });
}

int64_t packed_bytes(int32_t format, int64_t num_outputs, int64_t num_inputs) {
    return num_panels(num_outputs) *
           with_group<int64_t>(format, [=](auto group) { return panel_bytes<decltype(group)>(num_inputs); });
}

void pack(int32_t format, const void *rows, int64_t num_outputs, int64_t num_inputs, void *packed) {
    // Outputs past the last are zeros.
    if (num_outputs % kPanel != 0) {
        const int64_t bytes = packed_bytes(format, kPanel, num_inputs);
        std::memset(static_cast<uint8_t *>(packed) + num_outputs / kPanel * bytes, 0, static_cast<std::size_t>(bytes));
    }
    with_group<void>(format, [=](auto group) {
        pack_rows(group, static_cast<Bytes>(rows), num_outputs, num_inputs, static_cast<uint8_t *>(packed));
    });
}

void unpack_row(const PackedMatrix &weights, int64_t output, float *row) {
    with_group<void>(weights.format, [&](auto group) {
        using Group = decltype(group);
        Bytes panel = static_cast<Bytes>(weights.data) + output / kPanel * panel_bytes<Group>(weights.num_inputs);
        for (int64_t k = 0; k < weights.num_inputs; ++k)
            row[k] = weight(group, panel + k / block_inputs<Group>() * block_bytes<Group>(),
                            static_cast<int>(output % kPanel), static_cast<int>(k % block_inputs<Group>()));
    });
}

} // namespace octavo
