"""Where requests go: policies, loads, and who holds which prefix."""

from itertools import cycle

import pytest

from scheduler.core.routing import (
    MAX_CANDIDATES,
    OPEN_REQUEST_TOKENS,
    CachedPrefixes,
    Prompt,
    RouterShape,
    RoutingPolicy,
    WorkerId,
    make_router,
)

BLOCK = 16
HASHES = [bytes([index]) * 32 for index in range(8)]
SHORT = Prompt(BLOCK, ())


def router(policy, num_workers=4, draws=(0,), **fields):
    numbers = cycle(draws)
    return make_router(RoutingPolicy(policy), RouterShape(num_workers, BLOCK, **fields), lambda n: next(numbers) % n)


def publish(prefixes, worker_id, num_blocks):
    for prefix_hash in HASHES[:num_blocks]:
        prefixes.published(WorkerId(worker_id), prefix_hash)


def places(policy, prompts, **fields):
    chosen = router(policy, **fields)
    return [chosen.route(prompt).worker_id for prompt in prompts]


def test_round_robin_goes_round_whatever_the_load():
    assert places("round-robin", [Prompt(9000, ()), SHORT, SHORT, SHORT, SHORT]) == [0, 1, 2, 3, 0]


def test_the_least_loaded_worker_is_the_one_that_owes_fewest_tokens():
    assert places("least-loaded", [Prompt(9000, ()), *[SHORT] * 6], num_workers=3) == [0, 1, 2, 1, 2, 1, 2]


def test_a_load_falls_with_the_first_token_and_with_the_last():
    chosen = router("least-loaded", num_workers=2)
    long = chosen.route(Prompt(3 * OPEN_REQUEST_TOKENS, ()))
    assert [chosen.route(SHORT).worker_id for _ in range(3)] == [1, 1, 1]
    chosen.prefilled(long)
    assert chosen.route(SHORT).worker_id == 0
    chosen.ended(long)
    assert [chosen.route(SHORT).worker_id for _ in range(2)] == [0, 0]


def test_equally_loaded_workers_take_turns():
    chosen = router("least-loaded", num_workers=3)
    places = []
    for _ in range(5):
        route = chosen.route(SHORT)
        places.append(route.worker_id)
        chosen.prefilled(route)
        chosen.ended(route)
    assert places == [0, 1, 2, 0, 1]


def test_of_two_drawn_workers_the_less_loaded_one_is_chosen():
    # The first request draws 1 and, of the others, the one after it; so does the second.
    assert places("two-choices", [SHORT, SHORT, SHORT], draws=(1, 0)) == [1, 2, 1]


@pytest.mark.parametrize("draws", [(first, second) for first in range(4) for second in range(3)])
def test_the_two_drawn_workers_are_different_ones(draws):
    assert len(set(places("two-choices", [SHORT, SHORT], draws=draws))) == 2


def test_a_single_worker_gets_everything_under_every_policy():
    for policy in RoutingPolicy:
        assert places(policy, [SHORT, Prompt(100, HASHES[:6])], num_workers=1) == [0, 0]


def test_a_prompt_goes_where_most_of_its_prefix_is_cached():
    chosen = router("prefix-aware")
    publish(chosen.prefixes, 1, 2)
    publish(chosen.prefixes, 3, 5)
    route = chosen.route(Prompt(6 * BLOCK, HASHES[:6]))
    assert (route.worker_id, route.num_tokens) == (3, BLOCK)


def test_a_prefix_is_left_alone_when_its_worker_owes_more_than_it_saves():
    chosen = router("prefix-aware", num_workers=2)
    publish(chosen.prefixes, 1, 5)
    prompt = Prompt(6 * BLOCK, HASHES[:6])
    assert chosen.route(prompt).worker_id == 1  # saves 80 tokens, nobody owes any
    assert chosen.route(prompt).worker_id == 0  # the other owes 272 now


def test_a_small_load_weight_prefers_the_prefix():
    chosen = router("prefix-aware", num_workers=2, load_weight=0.01)
    publish(chosen.prefixes, 1, 5)
    prompt = Prompt(6 * BLOCK, HASHES[:6])
    assert [chosen.route(prompt).worker_id for _ in range(4)] == [1, 1, 1, 1]


def test_an_unknown_prefix_goes_to_the_least_loaded():
    assert places("prefix-aware", [Prompt(6 * BLOCK, HASHES[:6]), SHORT, SHORT], num_workers=3) == [0, 1, 2]


def test_the_last_token_of_a_wholly_cached_prompt_is_still_computed():
    chosen = router("prefix-aware", num_workers=2)
    publish(chosen.prefixes, 1, 6)
    route = chosen.route(Prompt(6 * BLOCK, HASHES[:6]))
    assert (route.worker_id, route.num_tokens) == (1, BLOCK)


def test_what_was_evicted_is_found_no_longer():
    prefixes = CachedPrefixes()
    publish(prefixes, 0, 3)
    publish(prefixes, 1, 2)
    assert prefixes.longest(HASHES, 9) == {0: 3, 1: 2}
    prefixes.evicted(WorkerId(0), HASHES[2])
    assert prefixes.longest(HASHES, 9) == {0: 2, 1: 2}
    for worker_id in (0, 1):
        for prefix_hash in HASHES[:2]:
            prefixes.evicted(WorkerId(worker_id), prefix_hash)
    assert (prefixes.longest(HASHES, 9), len(prefixes)) == ({}, 0)


def test_however_many_hold_a_block_only_so_many_are_weighed_and_the_longest_first():
    prefixes = CachedPrefixes()
    for worker_id in range(100):
        publish(prefixes, worker_id, 1)
    publish(prefixes, 100, 4)
    found = prefixes.longest(HASHES, MAX_CANDIDATES)
    assert (len(found), found[WorkerId(100)], next(iter(found))) == (MAX_CANDIDATES, 4, 100)


def test_only_a_policy_that_looks_at_prefixes_wants_to_hear_of_them():
    listens = {policy: router(policy).prefixes is not None for policy in RoutingPolicy}
    assert listens == {policy: policy is RoutingPolicy.PREFIX_AWARE for policy in RoutingPolicy}
