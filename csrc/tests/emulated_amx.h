// Tiles of bfloat16, after Intel's description of AMX, so that the kernels' use of them is tested on machines without.
// Included before the kernel source; pretends that the set is there. What would raise a fault,
// or read what a configuration does not cover, ends the program.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "emulated_avx512.h"

#undef __AMX_BF16__
#define __AMX_BF16__ 1

namespace emulated {
namespace {

struct Tile {
    alignas(64) char rows[16][64];
};

struct Tiles {
    bool configured = false;
    uint16_t bytes_per_row[8];
    uint8_t num_rows[8];
    Tile tiles[8];
};

thread_local Tiles tiles;

inline void demand(bool condition, const char *what) {
    if (condition) return;
    std::fprintf(stderr, "tiles: %s\n", what);
    std::abort();
}

inline void configure(const void *from) {
    const uint8_t *bytes = static_cast<const uint8_t *>(from);
    demand(bytes[0] == 1 && bytes[1] == 0, "palette or start row");
    tiles.configured = true;
    for (int i = 0; i < 8; ++i) {
        __builtin_memcpy(&tiles.bytes_per_row[i], bytes + 16 + 2 * i, 2);
        tiles.num_rows[i] = bytes[48 + i];
        demand(tiles.bytes_per_row[i] <= 64 && tiles.num_rows[i] <= 16, "a tile is 16 rows of 64 bytes at most");
    }
}

inline void release() { tiles.configured = false; }

inline Tile &tile(int i) {
    demand(tiles.configured, "none is configured");
    return tiles.tiles[i];
}

inline void zero(int i) { tile(i) = Tile{}; }

inline void load_tile(int i, const void *from, long stride) {
    zero(i);
    for (int row = 0; row < tiles.num_rows[i]; ++row)
        __builtin_memcpy(tile(i).rows[row], static_cast<const char *>(from) + row * stride, tiles.bytes_per_row[i]);
}

inline void store_tile(int i, void *to, long stride) {
    for (int row = 0; row < tiles.num_rows[i]; ++row)
        __builtin_memcpy(static_cast<char *>(to) + row * stride, tile(i).rows[row], tiles.bytes_per_row[i]);
}

inline float half_of_pair(const Tile &from, int row, int index) {
    uint16_t bits;
    __builtin_memcpy(&bits, from.rows[row] + 2 * index, sizeof bits);
    return widen_bfloat16(bits);
}

// Even and odd inputs are added up apart, in order, then together, then to the sum.
inline void dot_tiles(int to, int a, int b) {
    demand(tiles.num_rows[to] == tiles.num_rows[a] && tiles.bytes_per_row[to] == tiles.bytes_per_row[b] &&
               tiles.bytes_per_row[a] / 4 == tiles.num_rows[b],
           "the sizes of a product do not fit");
    for (int row = 0; row < tiles.num_rows[to]; ++row)
        for (int column = 0; column < tiles.bytes_per_row[to] / 4; ++column) {
            float sums[2] = {};
            for (int k = 0; k < tiles.num_rows[b]; ++k)
                for (int half = 0; half < 2; ++half)
                    sums[half] = __builtin_fmaf(half_of_pair(tile(a), row, 2 * k + half),
                                                half_of_pair(tile(b), k, 2 * column + half), sums[half]);
            float sum;
            char *place = tile(to).rows[row] + 4 * column;
            __builtin_memcpy(&sum, place, sizeof sum);
            sum += sums[0] + sums[1];
            __builtin_memcpy(place, &sum, sizeof sum);
        }
}

} // namespace
} // namespace emulated

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated::configure
#define _tile_release emulated::release
#define _tile_loadd emulated::load_tile
#define _tile_stored emulated::store_tile
#define _tile_zero emulated::zero
#define _tile_dpbf16ps emulated::dot_tiles
