// How packed weights lie in memory, the same for every instruction set.
//
// A panel is kPanel outputs; panels follow each other, so whoever walks them reads memory from front to back. Within a
// panel come groups of inputs, in order. A group holds what scales it, a value per output, then its words: a row of
// kPanel words of 32 bits per kFields inputs, one word per output, so that a vector's lanes are outputs.
//
//   panel  [inputs / 32] groups                                  Q4_1: 640 bytes, as many as in the file
//   group  [scale of each output][minimum of each output][words][kPanel]
//   word   field 0 (lowest bits), field 1, …                     field f of row t is input f * num_rows_of_words + t
//
// Fields are unsigned and are read where they lie: word & (mask << shift), as a float, is the value times a power of
// two, which the scale takes back without rounding. Outputs past the last are zeros.
#pragma once

#include <cstdint>

#include "octavo_product.h"

namespace octavo {

constexpr int kPanel = 32; // outputs

// Bytes a row of words takes.
constexpr int kWordsBytes = kPanel * 4;

struct Float32Group {
    static constexpr int kInputs = 1, kPerBlock = 1, kBlockHeader = 0;
    static constexpr int kWords = 0, kBytes = kWordsBytes;
};

// A word is two inputs, the first in its low half: what dot products of bfloat16 eat. An odd input count ends with 0.
struct BFloat16Group {
    static constexpr int kInputs = 2, kPerBlock = 1, kBlockHeader = 0;
    static constexpr int kWords = 0, kBytes = kWordsBytes;
};

// weight = scale * (byte - 128): the file's signed bytes, moved up
struct Q8_0Group {
    static constexpr int kInputs = 32, kPerBlock = 1, kBlockHeader = 0;
    static constexpr int kScales = 0; // float16
    static constexpr int kWords = 2 * kPanel, kBytes = kWords + 8 * kWordsBytes;
};

// weight = scale * (nibble - 8)
struct Q4_0Group {
    static constexpr int kInputs = 32, kPerBlock = 1, kBlockHeader = 0;
    static constexpr int kScales = 0; // float16
    static constexpr int kWords = 2 * kPanel, kBytes = kWords + 4 * kWordsBytes;
};

// weight = scale * nibble + minimum
struct Q4_1Group {
    static constexpr int kInputs = 32, kPerBlock = 1, kBlockHeader = 0;
    static constexpr int kScales = 0, kMinima = 2 * kPanel; // float16
    static constexpr int kWords = 4 * kPanel, kBytes = kWords + 4 * kWordsBytes;
};

// weight = (block scale * scale) * nibble - block minimum * minimum
struct Q4_KGroup {
    static constexpr int kInputs = 32, kPerBlock = 8;
    static constexpr int kBlockScales = 0, kBlockMinima = 2 * kPanel, kBlockHeader = 4 * kPanel; // float16
    static constexpr int kScales = 0, kMinima = kPanel;                                          // bytes below 64
    static constexpr int kWords = 2 * kPanel, kBytes = kWords + 4 * kWordsBytes;
};

// weight = (block scale * scale) * (nibble + 16 * pair - 32). Pairs are two bits: those of words t and t + 1 (t even)
// lie side by side at the place of the nibble, in row t / 2 of kPairs.
struct Q6_KGroup {
    static constexpr int kInputs = 32, kPerBlock = 8;
    static constexpr int kBlockScales = 0, kBlockHeader = 2 * kPanel; // float16
    static constexpr int kScales = 0;                                 // signed bytes, [2][kPanel]: of 16 inputs each
    static constexpr int kWords = 2 * kPanel, kPairs = kWords + 4 * kWordsBytes, kBytes = kPairs + 2 * kWordsBytes;
};

template <class Group> static constexpr int block_inputs() { return Group::kInputs * Group::kPerBlock; }

template <class Group> static constexpr int64_t block_bytes() {
    return Group::kBlockHeader + Group::kPerBlock * Group::kBytes;
}

template <class Group> static constexpr int64_t panel_bytes(int64_t num_inputs) {
    return (num_inputs + block_inputs<Group>() - 1) / block_inputs<Group>() * block_bytes<Group>();
}

static constexpr int64_t num_panels(int64_t num_outputs) { return (num_outputs + kPanel - 1) / kPanel; }

// f(Group{}) of a format's group.
template <class Result, class Function> static Result with_group(int32_t format, Function f) {
    switch (format) {
    case OCTAVO_WEIGHT_FLOAT32:
        return f(Float32Group{});
    case OCTAVO_WEIGHT_BFLOAT16:
        return f(BFloat16Group{});
    case OCTAVO_WEIGHT_Q8_0:
        return f(Q8_0Group{});
    case OCTAVO_WEIGHT_Q4_0:
        return f(Q4_0Group{});
    case OCTAVO_WEIGHT_Q4_1:
        return f(Q4_1Group{});
    case OCTAVO_WEIGHT_Q4_K:
        return f(Q4_KGroup{});
    default:
        return f(Q6_KGroup{});
    }
}

} // namespace octavo
