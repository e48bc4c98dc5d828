// Packed weights as vectors of outputs, in the order of the inputs: for input k of a group, visit(k, weights).
//
// A weight comes out as the file's format defines it, in float32, bit for bit. Products of a scale and a field are
// exact in float32, so that adding a minimum is the only rounding, fused or not. Included by kernels only.
#pragma once

#include "packed_weights.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr int kLanes = 16;
constexpr int kVectors = kPanel / kLanes;

// A value for each output of a panel.
struct Outputs {
    Floats16 at[kVectors];
};

template <class Element> inline Outputs load_outputs(const uint8_t *from) {
    const Element *elements = reinterpret_cast<const Element *>(from);
    return {{load(elements), load(elements + kLanes)}};
}

inline Outputs scaled(Outputs x, float by) {
    return {{multiply(x.at[0], broadcast(by)), multiply(x.at[1], broadcast(by))}};
}

inline Outputs scaled(Outputs x, Outputs by) { return {{multiply(x.at[0], by.at[0]), multiply(x.at[1], by.at[1])}}; }

// a * b + c
inline Outputs multiply_add(Outputs a, Outputs b, Outputs c) {
    return {{multiply_add(a.at[0], b.at[0], c.at[0]), multiply_add(a.at[1], b.at[1], c.at[1])}};
}

// ---------------------------------------------------------------- fields of words

// `width` bits at `shift`, as a float: the value itself from the word's top, which would be a sign, else times 2^shift.
template <int width> inline Floats16 field_in_place(Words16 word, int shift) {
    if (shift + width == 32) return to_floats(shift_right(word, shift));
    return to_floats(keep_bits(word, ((1u << width) - 1) << shift));
}

template <int width> inline Outputs fields_in_place(const uint8_t *words, int shift) {
    return {{field_in_place<width>(load_words(words), shift),
             field_in_place<width>(load_words(words + kWordsBytes / 2), shift)}};
}

// What takes the power of two back.
template <int width> inline float field_unit(int shift) {
    return shift + width == 32 ? 1.0f : 1.0f / static_cast<float>(1u << shift);
}

// The same address, about which the compiler knows nothing: it loads anew what it would otherwise keep, and spill.
inline const uint8_t *afresh(const uint8_t *address) {
    asm("" : "+r"(address));
    return address;
}

// Weights scale * field + offset of 32 inputs.
template <int width, class Visit>
inline void visit_fields(const uint8_t *words, Outputs scale, Outputs offset, Visit visit) {
    constexpr int kFields = 32 / width, kRows = width;
#pragma GCC unroll 8
    for (int f = 0; f < kFields; ++f) {
        const Outputs unit = scaled(scale, field_unit<width>(f * width));
        words = afresh(words);
#pragma GCC unroll 8
        for (int t = 0; t < kRows; ++t)
            visit(f * kRows + t,
                  multiply_add(fields_in_place<width>(words + t * kWordsBytes, f * width), unit, offset));
    }
}

// ---------------------------------------------------------------- groups

// `block` is where the group's block begins.

template <class Visit> inline void visit_group(Float32Group, const uint8_t *, const uint8_t *group, Visit visit) {
    visit(0, load_outputs<float>(group));
}

template <class Visit> inline void visit_group(BFloat16Group, const uint8_t *, const uint8_t *group, Visit visit) {
    const Words16 low = load_words(group), high = load_words(group + kWordsBytes / 2);
    visit(0, Outputs{{as_floats(shift_left(low, 16)), as_floats(shift_left(high, 16))}});
    visit(1, Outputs{{as_floats(keep_bits(low, 0xffff0000u)), as_floats(keep_bits(high, 0xffff0000u))}});
}

template <class Visit> inline void visit_group(Q8_0Group, const uint8_t *, const uint8_t *group, Visit visit) {
    const Outputs scale = load_outputs<float16>(group + Q8_0Group::kScales);
    visit_fields<8>(group + Q8_0Group::kWords, scale, scaled(scale, -128.0f), visit);
}

template <class Visit> inline void visit_group(Q4_0Group, const uint8_t *, const uint8_t *group, Visit visit) {
    const Outputs scale = load_outputs<float16>(group + Q4_0Group::kScales);
    visit_fields<4>(group + Q4_0Group::kWords, scale, scaled(scale, -8.0f), visit);
}

template <class Visit> inline void visit_group(Q4_1Group, const uint8_t *, const uint8_t *group, Visit visit) {
    visit_fields<4>(group + Q4_1Group::kWords, load_outputs<float16>(group + Q4_1Group::kScales),
                    load_outputs<float16>(group + Q4_1Group::kMinima), visit);
}

template <class Visit> inline void visit_group(Q4_KGroup, const uint8_t *block, const uint8_t *group, Visit visit) {
    const Outputs scale = scaled(load_outputs<float16>(block + Q4_KGroup::kBlockScales),
                                 load_outputs<int8_t>(group + Q4_KGroup::kScales));
    const Outputs minimum = scaled(load_outputs<float16>(block + Q4_KGroup::kBlockMinima),
                                   load_outputs<int8_t>(group + Q4_KGroup::kMinima));
    visit_fields<4>(group + Q4_KGroup::kWords, scale, scaled(minimum, -1.0f), visit);
}

template <class Visit> inline void visit_group(Q6_KGroup, const uint8_t *block, const uint8_t *group, Visit visit) {
    const Outputs block_scale = load_outputs<float16>(block + Q6_KGroup::kBlockScales);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const Outputs scale = scaled(block_scale, load_outputs<int8_t>(group + Q6_KGroup::kScales + half * kPanel));
        const Outputs offset = scaled(scale, -32.0f);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) {
            const int t = i % 4, shift = half * 16 + i / 4 * 4, pair_shift = shift + t % 2 * 2;
            const Outputs pairs = fields_in_place<2>(group + Q6_KGroup::kPairs + t / 2 * kWordsBytes, pair_shift);
            const Outputs high = multiply_add(pairs, scaled(scale, 16.0f * field_unit<2>(pair_shift)), offset);
            const Outputs low = fields_in_place<4>(group + Q6_KGroup::kWords + t * kWordsBytes, shift);
            visit(half * 16 + i, multiply_add(low, scaled(scale, field_unit<4>(shift)), high));
        }
    }
}

// Asks for the memory of a group some way ahead: panels follow each other, so what comes next is known, while the
// processor's own prefetchers stop at every page.
template <class Group> inline void prefetch_ahead(const uint8_t *group) {
    constexpr int kAhead = 4096, kLine = 64;
#pragma GCC unroll 32
    for (int at = 0; at < Group::kBytes; at += kLine) __builtin_prefetch(group + kAhead + at);
}

// All groups of the inputs [first, first + count) of a panel, `first` at a group's beginning: visit(k, weights) with k
// counted from `first`.
template <class Group, class Visit>
inline void visit_inputs(const uint8_t *panel, int64_t first, int64_t count, Visit visit) {
    for (int64_t k = 0; k < count; k += Group::kInputs) {
        const int64_t index = (first + k) / Group::kInputs;
        const uint8_t *block = panel + index / Group::kPerBlock * block_bytes<Group>();
        const uint8_t *group = block + Group::kBlockHeader + index % Group::kPerBlock * Group::kBytes;
        prefetch_ahead<Group>(group);
        visit_group(Group{}, block, group, [&](int i, Outputs weights) { visit(k + i, weights); });
    }
}

} // namespace
} // namespace octavo
