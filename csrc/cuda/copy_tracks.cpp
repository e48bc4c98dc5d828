#include "copy_tracks.h"

#include <cstddef>
#include <unordered_map>

#include "transfer_plan.h"

namespace octavo::cuda {
namespace {

// Sets of written blocks: a copy and the one that writes what it reads belong together.
class Components {
public:
    Components(const int64_t *pairs, int64_t num_pairs) {
        for (int64_t i = 0; i < num_pairs; ++i) parent_[pairs[2 * i + 1]] = pairs[2 * i + 1];
        for (int64_t i = 0; i < num_pairs; ++i)
            if (parent_.count(pairs[2 * i]) > 0) parent_[find(pairs[2 * i])] = find(pairs[2 * i + 1]);
    }

    int64_t find(int64_t block) {
        int64_t &parent = parent_.at(block);
        if (parent != block) parent = find_root(parent);
        return parent;
    }

private:
    int64_t find_root(int64_t block) const {
        while (parent_.at(block) != block) block = parent_.at(block);
        return block;
    }

    std::unordered_map<int64_t, int64_t> parent_;
};

} // namespace

CopyTracks plan_tracks(const int64_t *pairs, int64_t num_pairs) {
    Components components(pairs, num_pairs);
    std::vector<std::vector<Move>> tracks;
    std::unordered_map<int64_t, std::size_t> track_of; // by component
    for (const std::vector<Move> &wave : plan_copies(pairs, num_pairs))
        for (const Move &move : wave) {
            const int64_t written = move.destination == kSpare ? move.source : move.destination;
            const std::size_t track = track_of.emplace(components.find(written), tracks.size()).first->second;
            if (track == tracks.size()) tracks.emplace_back();
            tracks[track].push_back(move);
        }
    CopyTracks result{{0}, {}};
    for (const std::vector<Move> &track : tracks) {
        for (const Move &move : track) result.moves.insert(result.moves.end(), {move.source, move.destination});
        result.starts.push_back(static_cast<int64_t>(result.moves.size()) / 2);
    }
    return result;
}

} // namespace octavo::cuda
