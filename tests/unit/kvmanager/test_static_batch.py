"""The FasterTransformer baseline: nobody joins a batch that runs."""

import pytest

from kvmanager.core.plan import EnteringGroups, GroupId, Plan, RunningGroups, SequenceId
from kvmanager.core.spaces.memory_space import Lengths, Occupancy
from kvmanager.core.spaces.static_batch import StaticBatchSpace, StaticShape
from kvmanager.errors import BrokenPromise


class Rig:
    """Three places of 64 slots."""

    def __init__(self):
        self.lengths = dict.fromkeys(range(1, 9), Lengths(8, 8)) | {5: Lengths(4, 4, num_sequences=2)}
        self.space = StaticBatchSpace(StaticShape(4, 50, 64, num_places=3), self.lengths.__getitem__)
        self.step_id = 0

    def apply(self, entering=(), running=(), released=(), budget=1000):
        self.step_id += 1
        tokens = [self.lengths[i].num_prompt_tokens for i in entering]
        ids = [SequenceId(i) for i in entering]
        return self.space.apply(
            Plan(
                self.step_id,
                released=[SequenceId(i) for i in released],
                running=RunningGroups(sequence_ids=[SequenceId(i) for i in running], num_new_slots=[1] * len(running)),
                entering=EnteringGroups(
                    budget, [GroupId(i) for i in entering], [1] * len(ids), ids, tokens, [()] * len(ids)
                ),
            )
        )


def test_a_batch_has_as_many_requests_as_places():
    assert list(Rig().apply(entering=[1, 2, 3, 4]).admitted_group_ids) == [1, 2, 3]


def test_nobody_joins_while_one_of_the_batch_runs():
    rig = Rig()
    rig.apply(entering=[1, 2])
    rig.apply(running=[1, 2])
    grant = rig.apply(running=[2], released=[1], entering=[3])
    assert list(grant.admitted_group_ids) == []
    assert grant.refusal == "group 3 waits for the batch to end"


def test_the_next_batch_enters_when_the_last_one_ended():
    rig = Rig()
    rig.apply(entering=[1, 2])
    rig.apply()
    assert list(rig.apply(released=[1, 2], entering=[3, 4]).admitted_group_ids) == [3, 4]


def test_a_batch_that_one_plan_did_not_list_whole_is_completed_by_the_next():
    rig = Rig()
    rig.apply(entering=[1])
    assert list(rig.apply(running=[1], entering=[2, 3, 4]).admitted_group_ids) == [2, 3]
    assert list(rig.apply(running=[1, 2, 3], released=[], entering=[4]).admitted_group_ids) == []


def test_a_place_is_wasted_from_the_end_of_its_sequence_to_that_of_the_batch():
    rig = Rig()
    rig.apply(entering=[1, 2])
    rig.apply(running=[1, 2])
    rig.apply(running=[2], released=[1])
    assert rig.space.num_taken == 2
    assert rig.space.occupancy() == Occupancy(200, filled=10, reserved=6, internal=112)


def test_every_output_of_a_request_takes_a_place():
    rig = Rig()
    assert list(rig.apply(entering=[5, 6, 7]).admitted_group_ids) == [5, 6]


def test_an_unknown_sequence_breaks_a_promise():
    with pytest.raises(BrokenPromise, match="sequence 9 is unknown"):
        Rig().apply(released=[9])
