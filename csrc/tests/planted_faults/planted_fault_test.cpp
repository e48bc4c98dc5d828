// Is the fault found that this executable's kernel, or its input, has? The argument says how it should show.
#include "attention_problem.h"

#include <cstring>

namespace {

using octavo::emulation::Order;
using octavo::emulation::set_order;

using Problem = emulated::AttentionProblem<__nv_bfloat16>;

// Several warps over several tiles, of which the last is not full, over blocks that are not full either.
Problem several_warps() { return Problem({64, 1, 2, 16}, {{110, 50}}); }

// Random priorities ten times: what they miss once in a while does not count as found.
template <class Found> void require_in_every_random_order(Found found) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
        set_order(Order::kRandomWarps, seed);
        Problem problem = several_warps();
        REQUIRE(found(problem));
    }
}

bool is_wrong(Problem &problem) {
    problem.attend(false);
    return !problem.is_right();
}

bool is_right(Problem &problem) { return !is_wrong(problem); }

bool is_reported(Problem &problem) {
    problem.attend(false);
    return problem.status() == OCTAVO_DEVICE_ERROR && std::strstr(octavo_last_error(), "divergent barrier") != nullptr;
}

bool an_unowned_block_shows_as_nan(Problem &problem) {
    problem.tables()[1] = problem.unowned_block();
    problem.attend(false);
    const std::vector<float> output = problem.output();
    return std::all_of(output.begin(), output.end(), [](float x) { return std::isnan(x); });
}

bool a_block_past_the_pool_is_read(Problem &problem) {
    problem.tables()[1] = problem.num_blocks();
    problem.attend(false); // does not come back
    return false;
}

} // namespace

int main(int, char **arguments) {
    const std::string how = arguments[1];
    if (how == "right") require_in_every_random_order(is_right);
    if (how == "wrong") require_in_every_random_order(is_wrong);
    if (how == "reported") require_in_every_random_order(is_reported);
    if (how == "unowned_block") require_in_every_random_order(an_unowned_block_shows_as_nan);
    if (how == "block_past_the_pool") require_in_every_random_order(a_block_past_the_pool_is_read);
}
