"""The one state machine."""

import itertools
from itertools import count

import pytest

from doubles.rig import make_request
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import FinishReason, GroupId, SequenceId
from scheduler.core.sequence import IllegalChangeError, Sequence, SequenceStatus, new_group
from scheduler.core.steps import Preemption

ALLOWED = {
    ("waiting", "running"),
    ("waiting", "finished"),
    ("running", "waiting"),
    ("running", "swapped"),
    ("running", "finished"),
    ("swapped", "running"),
    ("swapped", "waiting"),
    ("swapped", "finished"),
}


def make_sequence(sequence_id: int = 1) -> Sequence:
    return Sequence(SequenceId(sequence_id), GroupId(1), [1, 2, 3], 3, 5, frozenset({9}))


@pytest.mark.parametrize(("old", "new"), [*itertools.product(SequenceStatus, SequenceStatus)])
def test_only_the_changes_of_the_table_are_allowed(old: SequenceStatus, new: SequenceStatus):
    sequence = make_sequence()
    sequence._status = old
    if (old.value, new.value) in ALLOWED:
        sequence.change_status(new)
        assert sequence.status is new
    else:
        with pytest.raises(IllegalChangeError, match=f"sequence 1: {old.value} → {new.value}"):
            sequence.change_status(new)


def test_losing_memory_forgets_what_was_computed_but_no_token():
    sequence = make_sequence()
    sequence.enter(2, block_size=2)
    sequence.append(7)
    sequence.lose_memory()
    assert (sequence.num_computed_tokens, sequence.num_sealed_blocks) == (0, 0)
    assert sequence.token_ids == [1, 2, 3, 7]


def test_a_sequence_swapped_in_keeps_what_was_sealed():
    sequence = make_sequence()
    sequence.enter(0, block_size=2)
    sequence.num_sealed_blocks = 1
    sequence.change_status(SequenceStatus.SWAPPED)
    sequence.enter(3, block_size=2)
    assert (sequence.num_computed_tokens, sequence.num_sealed_blocks) == (3, 1)


def test_appending_says_why_it_ends():
    sequence = make_sequence()
    assert sequence.append(4) is None
    assert sequence.append(4) is FinishReason.LENGTH
    assert make_sequence().append(9) is FinishReason.STOP


def test_a_group_of_one_is_recomputed_and_a_larger_one_swapped_unless_one_mode_is_set():
    recompute, swap = Preemption.RECOMPUTE, Preemption.SWAP
    assert [PreemptionMode.AUTO.of(n) for n in (1, 2, 3)] == [recompute, swap, swap]
    assert [PreemptionMode.SWAP.of(n) for n in (1, 2)] == [swap, swap]
    assert [PreemptionMode.RECOMPUTE.of(n) for n in (1, 2)] == [recompute, recompute]


def test_a_group_enters_with_a_trunk_that_wants_no_more_than_the_prompt():
    group = new_group(make_request([1, 2, 3], 5, num_choices=3), GroupId(1), map(SequenceId, count(1)))
    (trunk,) = group.entrants()
    assert (trunk.choice_index, trunk.num_branches, trunk.num_wanted_tokens) == (0, 3, 3)
    for sequence in group.sequences:
        sequence.append(7)
    trunk.finish(FinishReason.STOP)
    (trunk,) = group.entrants()
    assert (trunk.choice_index, trunk.num_branches, trunk.num_wanted_tokens) == (1, 3, 3)
    group.sequences[2].finish(FinishReason.STOP)
    assert group.entrants() == [trunk]
    assert (trunk.num_branches, trunk.num_wanted_tokens) == (1, 4)


def test_a_child_begins_with_the_prompt_of_its_trunk():
    trunk, child = make_sequence(1), make_sequence(2)
    trunk.block_hashes += bytes(32)
    child.fork_from(trunk, block_size=2)
    assert child.status is SequenceStatus.RUNNING
    assert (child.num_computed_tokens, child.num_sealed_blocks, child.block_hashes) == (3, 1, bytes(32))
