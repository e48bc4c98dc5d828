// The CPU's own layout of K and V inside a block, and the tiles of a context that are found through the block table.
//
//   layer   for each KV head its keys, then its values: what several heads have lies in one run
//   group   16 slots of one KV head; all of a block's groups lie side by side, first to last
//     keys    float32 [head_size][16]       bfloat16 [head_size / 2][16][2]
//     values  for each 16 columns (the last may be 8):
//             float32 [16][columns]         bfloat16 [8][columns][2]
//
// So lanes are slots for the scores and columns for the sums, bfloat16 comes in the pairs along the reduced axis that
// dot products of bfloat16 want, and both are read in the order in which they lie, 64 bytes at a time. A block whose
// size is no multiple of 16 is plain, [block_size][head_size]; its tiles are packed when they are met.
//
// Included by attention_kernel.cpp only.
#pragma once

#include "attention_kernel.h"
#include "octavo.h"
#include "simd.h"

namespace octavo {
namespace {

constexpr int kTileGroups = kTile / kGroup;
constexpr int kColumns = kGroup * kLanes; // elements of 16 columns of a group's values

// Steps of the reduced axis that lie side by side in a lane.
template <class Element> constexpr int kSteps = sizeof(Element) == 2 ? 2 : 1;

// Positions of one KV head that are scored and weighed together.
template <class Element> struct Tile {
    const Element *keys[kTileGroups];
    const Element *values[kTileGroups];
    int count; // positions in it
};

bool is_packed(int block_size) { return block_size % kGroup == 0; }

// From the first element of a block's keys.
template <class Element> int64_t key_index(int slot, int d, int head_size) {
    constexpr int S = kSteps<Element>;
    return int64_t{slot / kGroup} * kGroup * head_size + (d / S * kGroup + slot % kGroup) * S + d % S;
}

// From the first element of a block's values.
template <class Element> int64_t value_index(int slot, int d, int head_size) {
    constexpr int S = kSteps<Element>;
    const int first = d / kLanes * kLanes, columns = head_size - first < kLanes ? head_size - first : kLanes;
    const int in_group = slot % kGroup;
    return int64_t{slot / kGroup} * kGroup * head_size + first * kGroup + (in_group / S * columns + d % kLanes) * S +
           in_group % S;
}

template <class From, class To> void convert_row(const From *from, int head_size, float factor, To *to) {
    const int whole = head_size / kLanes * kLanes;
    for (int d = 0; d < whole; d += kLanes) store(to + d, multiply(load(from + d), broadcast(factor)));
    if (whole < head_size) store_half(to + whole, multiply(load_half(from + whole), broadcast(factor)));
}

template <class Element>
void pack_slot(const Element *key, const Element *value, int slot, int head_size, Element *keys, Element *values) {
    for (int d = 0; d < head_size; ++d) {
        keys[key_index<Element>(slot, d, head_size)] = key[d];
        values[value_index<Element>(slot, d, head_size)] = value[d];
    }
}

template <class From, class To> void store_in_slot(const From *key, const From *value, const KVSlot &slot) {
    To *keys = static_cast<To *>(slot.keys), *values = keys + slot.values_from;
    if (!is_packed(slot.block_size)) {
        const int64_t row = int64_t{slot.offset} * slot.head_size;
        convert_row(key, slot.head_size, 1.0f, keys + row);
        convert_row(value, slot.head_size, 1.0f, values + row);
        return;
    }
    for (int d = 0; d < slot.head_size; d += 8) {
        To key_part[8], value_part[8];
        store_half(key_part, load_half(key + d));
        store_half(value_part, load_half(value + d));
        for (int i = 0; i < 8; ++i) {
            keys[key_index<To>(slot.offset, d + i, slot.head_size)] = key_part[i];
            values[value_index<To>(slot.offset, d + i, slot.head_size)] = value_part[i];
        }
    }
}

template <class Element> void pack_tile(const PagedKV &kv, int64_t begin, int count, Element *scratch) {
    const Element *blocks = static_cast<const Element *>(kv.keys);
    for (int j = 0; j < count; ++j) {
        const int64_t position = begin + j;
        const Element *key = blocks + kv.block_table[position / kv.block_size] * kv.block_stride +
                             position % kv.block_size * kv.head_size;
        pack_slot(key, key + kv.values_from, j, kv.head_size, scratch, scratch + kTile * kv.head_size);
    }
}

// A group of a block, found through the table; of the first head.
template <class Element> const Element *group_keys(const PagedKV &kv, int64_t position) {
    return static_cast<const Element *>(kv.keys) + kv.block_table[position / kv.block_size] * kv.block_stride +
           position % kv.block_size * kv.head_size;
}

// `scratch` has room for the keys and values of a tile.
template <class Element>
void find_tile(const PagedKV &kv, int64_t begin, int count, Element *scratch, Tile<Element> &tile) {
    const bool packed = is_packed(kv.block_size);
    if (!packed) pack_tile(kv, begin, count, scratch);
    tile.count = count;
    for (int group = 0; group * kGroup < count; ++group) {
        tile.keys[group] =
            packed ? group_keys<Element>(kv, begin + group * kGroup) : scratch + group * kGroup * kv.head_size;
        tile.values[group] = tile.keys[group] + (packed ? kv.values_from : int64_t{kTile} * kv.head_size);
    }
}

// The tiles of all heads that will be read next, in the order in which they lie in memory. Each line that is read asks
// for one of these: a burst of prefetches would exceed what a core can have in flight, and wait.
template <class Element> class Upcoming {
public:
    void find(const PagedKV &kv, int64_t begin, int count) {
        num_groups_ = current_ = 0;
        offset_ = 0;
        group_size_ = kGroup * kv.head_size;
        const int step = kv.block_size < kTile ? kv.block_size : kTile; // positions of a block
        for (int first = 0; first < count; first += step)
            for (int head = 0; head < kv.num_heads; ++head)
                for (int which = 0; which < 2; ++which) // keys, values
                    for (int i = first; i < first + step && i < count; i += kGroup)
                        groups_[num_groups_++] =
                            group_keys<Element>(kv, begin + i) + head * kv.head_stride + which * kv.values_from;
    }

    // Nothing more is to be read: lines ask for what is there already.
    void find_nothing(const Element *present) {
        num_groups_ = 1;
        current_ = 0;
        offset_ = 0;
        group_size_ = 0;
        groups_[0] = present;
    }

    // The next elements, no more than a group's; at the end always the last ones.
    const Element *take(int num_elements) {
        const Element *taken = groups_[current_] + offset_;
        offset_ += num_elements;
        if (offset_ >= group_size_) {
            offset_ = 0;
            if (current_ + 1 < num_groups_) ++current_;
        }
        return taken;
    }

private:
    const Element *groups_[kMaxHeads * 2 * kTileGroups];
    int num_groups_, current_;
    int offset_, group_size_;
};

} // namespace
} // namespace octavo
