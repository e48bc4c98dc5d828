#include "transfer_plan.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace octavo {
namespace {

// Moves that wait until nobody needs what their destination holds.
class PendingMoves {
public:
    PendingMoves(const int64_t *pairs, int64_t num_pairs) {
        for (int64_t i = 0; i < num_pairs; ++i)
            if (pairs[2 * i] != pairs[2 * i + 1]) {
                source_of_[pairs[2 * i + 1]] = pairs[2 * i];
                ++num_readers_[pairs[2 * i]];
            }
    }

    bool empty() const { return source_of_.empty(); }

    // Moves to blocks that no waiting move reads.
    std::vector<Move> ready() const {
        std::vector<Move> moves;
        for (const auto &[destination, source] : source_of_)
            if (num_readers_.find(destination) == num_readers_.end()) moves.push_back({source, destination});
        return moves;
    }

    void done(const Move &move) {
        source_of_.erase(move.destination);
        if (move.source != kSpare && --num_readers_[move.source] == 0) num_readers_.erase(move.source);
    }

    // When nothing is ready only cycles wait, and each block in one has a single reader: let it read the spare block.
    Move open_cycle() {
        const int64_t block = source_of_.begin()->first;
        for (auto &[destination, source] : source_of_)
            if (source == block) source = kSpare;
        num_readers_.erase(block);
        return {block, kSpare};
    }

private:
    std::unordered_map<int64_t, int64_t> source_of_; // by destination
    std::unordered_map<int64_t, int64_t> num_readers_;
};

} // namespace

std::vector<std::vector<Move>> plan_copies(const int64_t *pairs, int64_t num_pairs) {
    std::vector<std::vector<Move>> waves;
    PendingMoves pending(pairs, num_pairs);
    while (!pending.empty()) {
        std::vector<Move> wave = pending.ready();
        if (wave.empty()) {
            waves.push_back({pending.open_cycle()});
            continue;
        }
        for (const Move &move : wave) pending.done(move);
        waves.push_back(std::move(wave));
    }
    return waves;
}

std::vector<Run> plan_swaps(const int64_t *pairs, int64_t num_pairs) {
    std::vector<Run> runs;
    for (int64_t i = 0; i < num_pairs; ++i) runs.push_back({pairs[2 * i], pairs[2 * i + 1], 1});
    std::sort(runs.begin(), runs.end(), [](const Run &a, const Run &b) {
        return a.source != b.source ? a.source < b.source : a.destination < b.destination;
    });
    std::size_t last = 0;
    for (std::size_t i = 1; i < runs.size(); ++i) {
        Run &run = runs[last];
        if (runs[i].source == run.source + run.num_blocks && runs[i].destination == run.destination + run.num_blocks)
            ++run.num_blocks;
        else
            runs[++last] = runs[i];
    }
    if (!runs.empty()) runs.resize(last + 1);
    return runs;
}

} // namespace octavo
