#include "transfer_plan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "require.h"

using octavo::kSpare;
using octavo::Move;
using octavo::Run;

namespace {

std::vector<Run> swaps(const std::vector<int64_t> &pairs) { return octavo::plan_swaps(pairs.data(), pairs.size() / 2); }

void runs_adjacent_in_both_pools_are_one_copy() {
    const auto runs = swaps({4, 0, 6, 2, 5, 1});
    REQUIRE(runs.size() == 1);
    REQUIRE(runs[0].source == 4 && runs[0].destination == 0 && runs[0].num_blocks == 3);
}

void runs_adjacent_in_one_pool_only_are_several() {
    REQUIRE(swaps({4, 0, 5, 2, 6, 1}).size() == 3);
    REQUIRE(swaps({0, 0, 2, 1}).size() == 2);
    REQUIRE(swaps({}).empty());
}

void independent_copies_are_one_wave() {
    const std::vector<int64_t> pairs{0, 1, 0, 2, 3, 4};
    REQUIRE(octavo::plan_copies(pairs.data(), 3).size() == 1);
}

void only_a_cycle_uses_the_spare_block() {
    const std::vector<int64_t> chain{0, 1, 1, 2}, cycle{0, 1, 1, 0};
    for (const auto &wave : octavo::plan_copies(chain.data(), 2))
        for (const Move &move : wave) REQUIRE(move.destination != kSpare);
    REQUIRE(octavo::plan_copies(cycle.data(), 2).front().front().destination == kSpare);
}

// The moves of a wave are carried out in random order: they must not depend on each other.
void any_copies_end_as_if_all_sources_were_read_first() {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<int64_t> destinations(8);
        std::iota(destinations.begin(), destinations.end(), 0);
        std::shuffle(destinations.begin(), destinations.end(), random);
        std::vector<int64_t> pairs, blocks(8), expected(8);
        std::iota(blocks.begin(), blocks.end(), 0);
        expected = blocks;
        for (int i = 0; i < round % 9; ++i) {
            pairs.insert(pairs.end(), {static_cast<int64_t>(random() % 8), destinations[i]});
            expected[destinations[i]] = pairs[2 * i];
        }
        int64_t spare = -1;
        const auto place = [&](int64_t block) -> int64_t & { return block == kSpare ? spare : blocks[block]; };
        for (auto &wave : octavo::plan_copies(pairs.data(), pairs.size() / 2)) {
            std::shuffle(wave.begin(), wave.end(), random);
            for (const Move &move : wave) place(move.destination) = place(move.source);
        }
        REQUIRE(blocks == expected);
    }
}

} // namespace

int main() {
    runs_adjacent_in_both_pools_are_one_copy();
    runs_adjacent_in_one_pool_only_are_several();
    independent_copies_are_one_wave();
    only_a_cycle_uses_the_spare_block();
    any_copies_end_as_if_all_sources_were_read_first();
}
