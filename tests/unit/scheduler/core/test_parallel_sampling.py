"""Several choices of one prompt: shared, forked, preempted and ended together or alone. Block size 4."""

import pytest

from doubles.model import expected_output
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import FinishReason
from scheduler.core.sequence import SequenceStatus
from scheduler.core.steps import OutOfStepError, Preemption, StepResult


def ids(group) -> list[int]:
    return [sequence.sequence_id for sequence in group.sequences]


def test_one_sequence_computes_the_prompt_and_draws_a_token_for_every_choice():
    rig = Rig()
    group = rig.add(range(6), num_choices=3)
    rig.step()
    assert rig.plan.entering.sequence_ids == ids(group)[:1]
    assert (rig.computed.num_tokens, rig.computed.num_choices) == ([6], [3])
    assert [group.sequences[i].token_ids[-1] for i in range(3)] == [
        expected_output(range(6), 1, choice_index=i)[0] for i in range(3)
    ]


def test_the_others_are_forked_from_it_and_the_full_blocks_of_the_prompt_stay_shared():
    rig = Rig(num_blocks=12)
    group = rig.add(range(6), num_choices=3, max_tokens=3)
    rig.step()
    rig.step()
    parent, *children = ids(group)
    assert rig.plan.forks == [(parent, child) for child in children]
    assert rig.plan.running.sequence_ids == [parent, *children]
    assert [new.choice_index for new in rig.computed.new_sequences] == [1, 2]
    assert len(rig.computed.changes.copies) == 2 * 2  # of three owners of the partial block the last writes in place
    assert rig.grant.usage.num_used_device_blocks == 4  # one shared, three own
    rig.run()
    rig.check_choices(group)
    rig.check_idle()


def test_a_prompt_in_chunks_is_forked_after_the_last():
    rig = Rig(num_blocks=20, budget=5, max_seqs=5)
    group = rig.add(range(12), num_choices=2)
    rig.step()
    assert not rig.computed.samples[0]
    assert rig.scheduler.num_running == 1
    rig.run()
    rig.check_choices(group)


def test_choices_count_among_the_sequences_that_run_even_before_they_are_forked():
    rig = Rig(num_blocks=30, max_seqs=4, budget=4)
    rig.add(range(9), num_choices=3)
    rig.step()
    second = rig.add(range(3), num_choices=2)
    rig.step()
    assert second.sequences[0].status is SequenceStatus.WAITING
    third = rig.add(range(3))
    rig.step()
    assert third.sequences[0].status is SequenceStatus.WAITING  # nobody overtakes
    rig.run()
    rig.check_choices(second)


def test_a_parent_that_ends_at_its_first_token_is_released_after_the_forks():
    rig = Rig()
    group = rig.add(range(6), max_tokens=5, num_choices=3, stop_token_ids=frozenset({expected_output(range(6), 1)[0]}))
    rig.step()
    rig.step()
    parent, *children = ids(group)
    assert rig.plan.forks == [(parent, child) for child in children]
    assert rig.plan.released == [parent]
    assert rig.plan.running.sequence_ids == children
    rig.run()
    rig.check_choices(group)
    rig.check_idle()


def test_a_child_that_ends_at_its_first_token_is_never_forked():
    rig = Rig()
    group = rig.add(range(6), max_tokens=1, num_choices=3)
    rig.step()
    rig.step()
    assert rig.plan.forks == []
    assert rig.plan.released == ids(group)[:1]
    rig.check_choices(group)
    rig.check_idle()


def preempting_rig(mode: PreemptionMode, num_host_blocks: int = 16) -> tuple[Rig, list]:
    """Two groups of which the later must give way."""
    rig = Rig(num_blocks=10, num_host_blocks=num_host_blocks, mode=mode)
    groups = [rig.add(range(6), max_tokens=12, num_choices=2), rig.add(range(20, 26), max_tokens=12, num_choices=2)]
    while not (rig.grant and rig.grant.preempted_group_ids):
        rig.step()
    assert rig.grant.preempted_group_ids == [groups[1].group_id]
    return rig, groups


@pytest.mark.parametrize("mode", [PreemptionMode.AUTO, PreemptionMode.SWAP])
def test_a_group_of_several_is_swapped_out_and_in_together_and_told_to_the_worker_again(mode: PreemptionMode):
    rig, (first, second) = preempting_rig(mode)
    assert rig.grant.preempted_modes == [Preemption.SWAP]
    assert {sequence.status for sequence in second.sequences} == {SequenceStatus.SWAPPED}
    num_tokens = [len(sequence.token_ids) for sequence in second.sequences]
    while not rig.grant.admitted_group_ids:
        rig.step()
    assert rig.plan.entering.sequence_ids == ids(second)
    assert rig.plan.entering.num_tokens == num_tokens
    assert rig.grant.num_new_slots == [1, 1]  # nothing is computed twice
    assert [new.sequence_id for new in rig.computed.new_sequences] == ids(second)
    rig.run()
    assert (rig.scheduler.num_preemptions, rig.scheduler.num_swaps) == (1, 1)
    for group in (first, second):
        rig.check_choices(group)
    rig.check_idle()


def test_a_group_that_was_dropped_computes_its_prompt_once_and_is_forked_again():
    rig, (first, second) = preempting_rig(PreemptionMode.RECOMPUTE)
    assert rig.grant.preempted_modes == [Preemption.RECOMPUTE]
    while not rig.grant.admitted_group_ids:
        rig.step()
    trunk, sibling = ids(second)
    assert rig.plan.entering.sequence_ids == [trunk]
    assert rig.plan.entering.num_tokens == [6]
    assert rig.computed.samples[-1] is False
    rig.step()
    assert rig.plan.forks == [(trunk, sibling)]
    assert rig.computed.positions[-2:] == [6, 6]
    rig.run()
    assert rig.scheduler.num_swaps == 0
    for group in (first, second):
        rig.check_choices(group)
    rig.check_idle()


def test_where_the_host_has_no_room_a_group_is_recomputed_all_the_same():
    rig, (first, second) = preempting_rig(PreemptionMode.SWAP, num_host_blocks=1)
    assert rig.grant.preempted_modes == [Preemption.RECOMPUTE]
    rig.run()
    for group in (first, second):
        rig.check_choices(group)
    rig.check_idle()


def test_a_single_sequence_is_swapped_when_asked_for():
    rig = Rig(num_blocks=4, num_host_blocks=4, mode=PreemptionMode.SWAP)
    groups = [rig.add(range(7), max_tokens=8), rig.add(range(20, 27), max_tokens=8)]
    rig.run()
    assert rig.scheduler.num_swaps > 0
    for group in groups:
        rig.check_choices(group)
    rig.check_idle()


class TestAbort:
    """All choices end wherever the group is."""

    def test_between_the_first_tokens_and_the_fork(self):
        rig = Rig()
        group = rig.add(range(6), num_choices=3)
        rig.step()
        rig.scheduler.abort(group.group_id)
        rig.step()
        assert (rig.plan.forks, rig.plan.released) == ([], ids(group)[:1])
        rig.check_idle()

    def test_while_the_fork_is_unanswered(self):
        rig = Rig()
        group = rig.add(range(6), num_choices=3)
        rig.step()
        grant = rig.pool.grant(rig.scheduler.plan())
        rig.scheduler.abort(group.group_id)
        rig.computed = rig.scheduler.apply(grant)
        assert rig.computed.sequence_ids == []
        rig.commit()
        rig.run()
        rig.check_idle()

    def test_while_it_is_being_swapped_out_and_while_it_is_swapped(self):
        for num_more_steps in (0, 1):
            rig, (first, second) = preempting_rig(PreemptionMode.SWAP)
            for _ in range(num_more_steps):
                rig.step()
            rig.scheduler.abort(second.group_id)
            rig.run()
            rig.check_choices(first)
            rig.check_idle()

    def test_while_its_swapping_in_is_unanswered(self):
        rig, (_, second) = preempting_rig(PreemptionMode.SWAP)
        while second.group_id not in (grant := rig.pool.grant(rig.scheduler.plan())).admitted_group_ids:
            rig.computed = rig.scheduler.apply(grant)
            rig.commit()
        rig.scheduler.abort(second.group_id)
        rig.computed = rig.scheduler.apply(grant)
        rig.commit()
        rig.run()
        rig.check_idle()


def test_one_choice_may_end_by_its_text_while_the_others_go_on():
    rig = Rig()
    group = rig.add(range(6), num_choices=3, max_tokens=4)
    rig.step()
    rig.scheduler.finish([(group.sequences[1].sequence_id, FinishReason.STOP)])
    rig.run()
    assert [len(rig.choices[group.group_id][choice]) for choice in range(3)] == [4, 1, 4]
    rig.check_idle()


def test_when_memory_is_lost_the_choices_are_forked_again():
    rig = Rig()
    group = rig.add(range(6), num_choices=3, max_tokens=5)
    rig.step()
    rig.step()
    rig.pool, rig.model = Pool(8, 4), type(rig.model)(4)
    rig.scheduler.restart_memory(make_shape(8, 4, epoch=2))
    rig.run()
    rig.check_choices(group)
    rig.check_idle()


def test_a_result_with_too_few_choices_is_refused():
    rig = Rig()
    group = rig.add(range(6), num_choices=3)
    step = rig.scheduler.apply(rig.pool.grant(rig.scheduler.plan()))
    trunk = group.sequences[0].sequence_id
    with pytest.raises(OutOfStepError, match="no token for sequences"):
        rig.scheduler.commit(StepResult(step.step_id, [trunk] * 2, [5, 6], [-1.0] * 2))


def test_requests_of_different_salts_share_nothing_and_of_one_salt_everything():
    rig = Rig(num_blocks=20)
    cached = []
    for salt in ("a", "a", "b", ""):
        group = rig.add(range(12), 2, 1, salt)
        rig.run()
        cached.append(group.num_cached_tokens)
    assert cached == [0, 8, 0, 0]
