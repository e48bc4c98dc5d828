// In which order blocks move.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo {

// A place outside the pool with room for one block.
constexpr int64_t kSpare = -1;

struct Move {
    int64_t source; // block id or kSpare
    int64_t destination;
};

struct Run {
    int64_t source;
    int64_t destination;
    int64_t num_blocks;
};

// Waves of moves, one wave after the other, whose outcome is as if all sources were read first. The moves of a wave are
// independent. `pairs`: [num_pairs][2], destinations all different.
std::vector<std::vector<Move>> plan_copies(const int64_t *pairs, int64_t num_pairs);

// The fewest copies between two pools: ids adjacent in both become one run.
std::vector<Run> plan_swaps(const int64_t *pairs, int64_t num_pairs);

} // namespace octavo
