// Copies and swaps of blocks, emulated, against copies of the whole pool.
#include <numeric>
#include <set>
#include <string>

#include "copy_tracks.h"
#include "emulated.h"
#include "transfer_plan.h"

using namespace emulated;
using octavo::cuda::CopyTracks;
using octavo::cuda::plan_tracks;

namespace {

constexpr int64_t kNumBlocks = 9;

std::vector<int64_t> random_pairs(std::mt19937 &random, int num_pairs) {
    std::vector<int64_t> destinations(kNumBlocks), pairs;
    std::iota(destinations.begin(), destinations.end(), 0);
    std::shuffle(destinations.begin(), destinations.end(), random);
    for (int i = 0; i < num_pairs; ++i)
        pairs.insert(pairs.end(), {static_cast<int64_t>(random() % kNumBlocks), destinations[i]});
    return pairs;
}

octavo_cache cache_over(std::vector<uint16_t> &pool, int64_t num_blocks, int block_size, int head_size) {
    return {pool.data(), num_blocks, 3, 2, block_size, head_size, OCTAVO_FLOAT16};
}

std::vector<uint16_t> numbered(size_t count) {
    std::vector<uint16_t> values(count);
    std::iota(values.begin(), values.end(), uint16_t{1});
    return values;
}

void copies_end_as_if_all_sources_were_read_first(int block_size, int head_size) {
    const size_t block = 3 * 2 * 2 * block_size * head_size;
    std::mt19937 random(block_size);
    for (int round = 0; round < 40; ++round) {
        const int num_pairs = round % (kNumBlocks + 1);
        const std::vector<int64_t> pairs = random_pairs(random, num_pairs);
        std::vector<uint16_t> pool = numbered(kNumBlocks * block), expected(pool);
        for (int i = 0; i < num_pairs; ++i)
            for (size_t j = 0; j < block; ++j)
                expected[pairs[2 * i + 1] * block + j] = static_cast<uint16_t>(pairs[2 * i] * block + j + 1);
        const octavo_cache cache = cache_over(pool, kNumBlocks, block_size, head_size);
        REQUIRE(octavo_cuda_copy_blocks({cache, pairs.data(), num_pairs}, nullptr) == OCTAVO_OK);
        REQUIRE(pool == expected);
    }
}

std::set<int64_t> blocks_of(const CopyTracks &tracks, int64_t track, int64_t first_member, int64_t last_member) {
    std::set<int64_t> blocks;
    for (int64_t move = tracks.starts[track]; move < tracks.starts[track + 1]; ++move)
        for (int64_t member = first_member; member <= last_member; ++member)
            blocks.insert(tracks.moves[2 * move + member]);
    blocks.erase(octavo::kSpare);
    return blocks;
}

void no_track_touches_what_another_writes() {
    std::mt19937 random(3);
    for (int round = 0; round < 500; ++round) {
        const std::vector<int64_t> pairs = random_pairs(random, round % (kNumBlocks + 1));
        const CopyTracks tracks = plan_tracks(pairs.data(), static_cast<int64_t>(pairs.size()) / 2);
        for (int64_t a = 0; a < tracks.num_tracks(); ++a)
            for (int64_t b = 0; b < tracks.num_tracks(); ++b) {
                if (a == b) continue;
                const std::set<int64_t> touched = blocks_of(tracks, a, 0, 1);
                for (const int64_t written : blocks_of(tracks, b, 1, 1)) REQUIRE(touched.count(written) == 0);
            }
    }
}

void copies_of_one_block_are_tracks_of_their_own() {
    const std::vector<int64_t> shared_source{0, 1, 0, 2, 0, 3}, cycle{0, 1, 1, 2, 2, 0}, itself{4, 4};
    REQUIRE(plan_tracks(shared_source.data(), 3).num_tracks() == 3);
    REQUIRE(plan_tracks(cycle.data(), 3).num_tracks() == 1);
    REQUIRE(plan_tracks(itself.data(), 1).num_tracks() == 0);
}

void swaps_copy_between_pools_of_different_sizes() {
    const size_t block = 3 * 2 * 2 * 4 * 16;
    std::vector<uint16_t> device = numbered(6 * block), host(3 * block, 0);
    const std::vector<int64_t> pairs{4, 0, 5, 1, 0, 2};
    const octavo_swap_blocks_params params{cache_over(device, 6, 4, 16), cache_over(host, 3, 4, 16), pairs.data(), 3};
    REQUIRE(octavo_cuda_swap_blocks(params, nullptr, nullptr) == OCTAVO_OK);
    for (int i = 0; i < 3; ++i)
        for (size_t j = 0; j < block; ++j)
            REQUIRE(host[pairs[2 * i + 1] * block + j] == device[pairs[2 * i] * block + j]);
}

void bad_pairs_are_refused_and_nothing_is_written() {
    std::vector<uint16_t> pool = numbered(kNumBlocks * 3 * 2 * 2 * 4 * 16), before(pool);
    const octavo_cache cache = cache_over(pool, kNumBlocks, 4, 16);
    const std::vector<int64_t> beyond{0, 1, 9, 2}, twice{0, 1, 2, 1};
    REQUIRE(octavo_cuda_copy_blocks({cache, beyond.data(), 2}, nullptr) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()) == "source block of pairs[1] is 9, must be in 0..8");
    REQUIRE(octavo_cuda_copy_blocks({cache, twice.data(), 2}, nullptr) == OCTAVO_INVALID_ARGUMENT);
    REQUIRE(std::string(octavo_last_error()) == "destination block 1 is written more than once");
    REQUIRE(pool == before);
}

} // namespace

int main() {
    in_every_order([] {
        copies_end_as_if_all_sources_were_read_first(1, 8);
        copies_end_as_if_all_sources_were_read_first(4, 80);
    });
    copies_end_as_if_all_sources_were_read_first(32, 64); // more columns than one thread block has
    no_track_touches_what_another_writes();
    copies_of_one_block_are_tracks_of_their_own();
    swaps_copy_between_pools_of_different_sizes();
    bad_pairs_are_refused_and_nothing_is_written();
}
