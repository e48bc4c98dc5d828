"""The Orca baselines: a chunk for each sequence, reserved when it enters."""

import pytest

from kvmanager.core.plan import EnteringGroups, Fork, GroupId, Plan, RunningGroups, SequenceId
from kvmanager.core.spaces.contiguous import ContiguousShape, ContiguousSpace
from kvmanager.core.spaces.memory_space import Estimate, Lengths, Occupancy
from kvmanager.errors import BrokenPromise

MAX_MODEL_LEN = 64


class Rig:
    """32 blocks of 4 slots, and requests of a prompt and an output each."""

    def __init__(self, estimate=Estimate.ORACLE, **lengths):
        self.lengths = {1: Lengths(8, 8), 2: Lengths(8, 8), 3: Lengths(8, 8)} | lengths.get("lengths", {})
        shape = ContiguousShape(4, 32, MAX_MODEL_LEN, estimate)
        self.space = ContiguousSpace(shape, self.lengths.__getitem__)
        self.step_id = 0

    def apply(self, entering=(), running=(), released=(), forks=(), budget=1000):
        self.step_id += 1
        return self.space.apply(
            Plan(
                self.step_id,
                forks=[Fork(SequenceId(parent), SequenceId(child)) for parent, child in forks],
                released=[SequenceId(i) for i in released],
                running=RunningGroups(sequence_ids=[SequenceId(i) for i in running], num_new_slots=[1] * len(running)),
                entering=EnteringGroups(
                    budget,
                    [GroupId(i) for i in entering],
                    [1] * len(entering),
                    [SequenceId(i) for i in entering],
                    [self.lengths[i].num_prompt_tokens for i in entering],
                    [()] * len(entering),
                ),
            )
        )


@pytest.mark.parametrize(
    ("estimate", "num_slots"), [(Estimate.MAX, 64), (Estimate.POW2, 10 + 32), (Estimate.ORACLE, 10 + 25)]
)
def test_an_output_of_25_tokens_reserves_what_the_paper_says(estimate, num_slots):
    assert estimate.num_slots(Lengths(10, 25), MAX_MODEL_LEN) == num_slots


@pytest.mark.parametrize("estimate", list(Estimate))
def test_nobody_reserves_more_than_the_context(estimate):
    assert estimate.num_slots(Lengths(40, 20), MAX_MODEL_LEN) <= MAX_MODEL_LEN


def test_slots_are_filled_reserved_or_never_used():
    rig = Rig(Estimate.MAX, lengths={1: Lengths(8, 20)})
    rig.apply(entering=[1])
    rig.apply(running=[1])
    assert rig.space.occupancy() == Occupancy(128, filled=9, reserved=19, internal=36)
    assert rig.space.occupancy().external == 64


def test_the_rounding_of_a_chunk_is_external_waste():
    rig = Rig(lengths={1: Lengths(9, 9)})
    rig.apply(entering=[1])
    assert rig.space.usage.num_used_device_blocks == 8, "5 blocks, rounded up"
    assert rig.space.occupancy() == Occupancy(128, filled=9, reserved=9, internal=0)


def test_the_head_of_the_queue_blocks_a_smaller_request():
    rig = Rig(Estimate.MAX, lengths={3: Lengths(1, 1)})
    assert rig.apply(entering=[1, 2]).admitted_group_ids == [1, 2]
    grant = rig.apply(entering=[3])
    assert grant.admitted_group_ids == []
    assert grant.refusal == "group 3 waits for a chunk"


def test_who_waits_for_budget_enters_in_the_next_step():
    rig = Rig()
    first = rig.apply(entering=[1, 2], budget=8)
    assert (first.admitted_group_ids, first.num_new_slots) == ([1], [8])
    assert rig.apply(entering=[2], running=[1]).admitted_group_ids == [2]


def test_a_chunk_comes_back_when_its_sequence_ends():
    rig = Rig()
    rig.apply(entering=[1])
    assert rig.apply(released=[1]).usage.num_used_device_blocks == 0


def test_each_sequence_of_a_group_has_a_chunk_of_its_own_from_the_beginning():
    rig = Rig(lengths={1: Lengths(8, 8, num_sequences=3)})
    assert rig.apply(entering=[1]).usage.num_used_device_blocks == 12
    grant = rig.apply(forks=[(1, 11), (1, 12)])
    assert rig.space.num_sequences == 3
    assert rig.space.occupancy().filled == 24, "the prompt is in each chunk"
    assert len(grant.changes.copies) == 2 * 2 * 2, "two blocks of prompt copied twice"
    assert rig.apply(released=[1, 11]).usage.num_used_device_blocks == 4
    assert rig.apply(released=[12]).usage.num_used_device_blocks == 0


def test_a_group_that_does_not_fit_whole_takes_nothing():
    rig = Rig(lengths={1: Lengths(30, 30, num_sequences=3)})
    assert rig.apply(entering=[1]).refusal
    assert rig.space.usage.num_used_device_blocks == 0


def test_a_beam_takes_the_chunk_of_one_that_ends_in_the_same_step():
    rig = Rig(lengths={1: Lengths(8, 8, num_sequences=2)})
    rig.apply(entering=[1])
    rig.apply(forks=[(1, 11)])
    assert rig.apply(forks=[(1, 12)], released=[11]).usage.num_used_device_blocks == 8
    assert rig.space.num_sequences == 2


def test_a_group_that_ends_before_it_forked_gives_all_its_chunks_back():
    rig = Rig(lengths={1: Lengths(8, 8, num_sequences=4)})
    rig.apply(entering=[1])
    assert rig.apply(released=[1]).usage.num_used_device_blocks == 0


def test_writing_behind_the_chunk_breaks_a_promise():
    rig = Rig(lengths={1: Lengths(8, 1)})
    rig.apply(entering=[1])
    rig.apply(running=[1])
    with pytest.raises(BrokenPromise, match="sequence 1 wants 10 slots, but reserved 9"):
        rig.apply(running=[1])


@pytest.mark.parametrize("what", [{"released": [9]}, {"running": [9]}, {"forks": [(9, 10)]}])
def test_an_unknown_sequence_breaks_a_promise(what):
    with pytest.raises(BrokenPromise, match="sequence 9 is unknown"):
        Rig().apply(**what)
