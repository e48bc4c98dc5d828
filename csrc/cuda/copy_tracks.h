// Copies inside a pool, cut into lists that do not touch each other's blocks.
#pragma once

#include <cstdint>
#include <vector>

namespace octavo::cuda {

// For a kernel whose threads each own some bytes of every block: a thread that makes the moves of a track in their
// order, with a register for kSpare, copies as if all sources were read first. Tracks may run at the same time.
struct CopyTracks {
    std::vector<int64_t> starts; // [num_tracks + 1], first move of each track
    std::vector<int64_t> moves;  // [num_moves][2]: source, destination; block ids or kSpare

    int64_t num_tracks() const { return static_cast<int64_t>(starts.size()) - 1; }
};

// `pairs`: [num_pairs][2], destinations all different.
CopyTracks plan_tracks(const int64_t *pairs, int64_t num_pairs);

} // namespace octavo::cuda
