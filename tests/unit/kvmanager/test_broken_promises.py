"""A plan that contradicts what its caller knows is refused whole, with the names and numbers."""

from dataclasses import replace

import pytest

from doubles.memory_rig import SWAP, Entering, MemoryRig, Running, chain, plan
from kvmanager.core.plan import PrefixHash, RunningGroups
from kvmanager.errors import BrokenPromise, MalformedPlan, StaleStep

HASH = chain("a")[0]


@pytest.fixture
def busy(rig) -> MemoryRig:
    """Sequences 1 and 2 run, 3 is swapped; the next step is 6."""
    rig.prompt(1, 6)
    rig.prompt(2, 6)
    rig.prompt(3, 6)
    rig.step(running=[Running(1, {1: 11}), Running(2, {2: 0}), Running(3, {3: 0}, SWAP)])
    rig.step()
    assert rig.space.host_blocks_of(3) is not None
    return rig


@pytest.mark.parametrize(
    ("wants", "words"),
    [
        ({"released": [9]}, "released: sequence 9 is unknown"),
        ({"released": [1, 1]}, "released: 2 sequence ids, of which 1 are different"),
        ({"forks": [(9, 10)]}, "forks: sequence 9 is unknown"),
        ({"forks": [(1, 2)]}, "forks: child 2 exists already"),
        ({"forks": [(1, 10), (2, 10)]}, "forks: child 10 exists already"),
        ({"forks": [(1, 3)]}, "forks: child 3 exists already"),
        ({"sealed": [(9, 0, HASH)]}, "sealed: sequence 9 is unknown"),
        ({"sealed": [(2, 1, HASH)]}, "sealed: block 1 of sequence 2: only 1 blocks are full"),
        ({"running": [Running(9, {9: 1})]}, "running: sequence 9 has no table on the device"),
        ({"running": [Running(3, {3: 1})]}, "running: sequence 3 has no table on the device"),
        ({"running": [Running(1, {1: 1}), Running(2, {1: 1})]}, "running: 2 sequence ids, of which 1 are different"),
        ({"running": [Running(1, {1: 1})], "released": [1]}, "running: sequence 1 is released or running"),
        ({"forks": [(3, 10)], "running": [Running(1, {10: 1})]}, "running: sequence 10 has no table on the device"),
        ({"entering": [Entering(1, {1: 7})]}, "entering: sequence 1 is on the device already"),
        ({"forks": [(1, 10)], "entering": [Entering(1, {10: 9})]}, "entering: sequence 10 is on the device already"),
        ({"released": [3], "entering": [Entering(3, {3: 7})]}, "entering: sequence 3 is released or running"),
        ({"entering": [Entering(3, {3: 5})]}, "entering.num_tokens: 5 for sequence 3: must be at least 6"),
        ({"entering": [Entering(9, {9: 0})]}, "entering.num_tokens: 0 for sequence 9: must be at least 1"),
    ],
)
def test_a_broken_promise_is_refused_and_nothing_is_changed(busy, wants, words):
    before = busy.space.snapshot()
    with pytest.raises(BrokenPromise, match=words):
        busy.step(**wants)
    assert busy.space.snapshot() == before
    busy.step(running=[Running(1, {1: 1})])


@pytest.mark.parametrize(
    ("wants", "words"),
    [
        ({"sealed": [(1, 0, PrefixHash(b"short"))]}, "sealed.hashes: an entry has 5 bytes, not 32"),
        (
            {"entering": [Entering(9, {9: 7}, {9: chain("a", "b")})]},
            "prefix_hashes: 2 for sequence 9: its 7 tokens fill 1",
        ),
        ({"running": [Running(9, {})]}, "no group may be empty"),
        ({"entering": [Entering(9, {})]}, "no group may be empty"),
    ],
)
def test_a_malformed_plan_is_refused_and_nothing_is_changed(busy, wants, words):
    before = busy.space.snapshot()
    with pytest.raises(MalformedPlan, match=words):
        busy.step(**wants)
    assert busy.space.snapshot() == before


def test_columns_of_different_lengths_are_named(busy):
    running = RunningGroups([1], [1], [SWAP], [1], [1, 1])
    with pytest.raises(MalformedPlan, match=r"running: sequence_ids and num_new_slots have \[1, 2\] entries"):
        busy.space.apply(replace(plan(busy.space.last_step_id + 1), running=running))


def test_step_ids_are_consecutive(busy):
    last = busy.space.last_step_id
    for step_id in (0, last - 1, last, last + 2):
        with pytest.raises(StaleStep, match=f"step_id: {step_id} does not follow {last}"):
            busy.space.apply(plan(step_id))


def test_the_first_step_of_a_space_may_have_any_positive_id(rig):
    with pytest.raises(StaleStep):
        rig.space.apply(plan(0))
    rig.space.apply(plan(1234))
    rig.space.apply(plan(1235))
