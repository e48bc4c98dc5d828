"""Iteration-level scheduling, one step at a time. Block size 4 and 8 blocks unless said."""

import pytest

from doubles.model import expected_output
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from scheduler.core.request import FinishReason, SequenceId
from scheduler.core.scheduler import Scheduler
from scheduler.core.sequence import SequenceStatus
from scheduler.core.shape import SchedulerConfig
from scheduler.core.steps import OutOfStepError, StepResult


def test_an_idle_scheduler_has_nothing_to_plan():
    assert Rig().scheduler.plan() is None


def test_groups_enter_in_order_of_arrival():
    rig = Rig()
    first, second = rig.add(range(3)), rig.add(range(2))
    rig.step()
    assert rig.plan.entering.group_ids == [first.group_id, second.group_id]
    assert rig.computed.sequence_ids == [first.sequences[0].sequence_id, second.sequences[0].sequence_id]


def test_a_later_arrival_joins_while_an_earlier_one_decodes():
    rig = Rig()
    first = rig.add(range(3), max_tokens=6)
    rig.step()
    second = rig.add(range(5))
    rig.step()
    assert rig.plan.running.group_ids == [first.group_id]
    assert rig.computed.num_tokens == [1, 5]
    assert rig.computed.positions == [3, 0]
    assert [new.sequence_id for new in rig.computed.new_sequences] == [second.sequences[0].sequence_id]


def test_a_long_prompt_is_computed_in_chunks_and_samples_after_the_last():
    rig = Rig(budget=5, max_seqs=5)
    group = rig.add(range(12), max_tokens=1)
    chunks = []
    while rig.step():
        chunks.append((rig.computed.num_tokens, rig.computed.samples))
    assert chunks == [([5], [False]), ([5], [False]), ([2], [True]), ([], [])]
    assert rig.outputs[group.group_id] == expected_output(range(12), 1)


def test_decodes_go_before_chunks_of_prompts():
    rig = Rig(budget=4, max_seqs=4)
    early = rig.add(range(9), max_tokens=2)
    rig.run(max_steps=20)
    early = rig.add(range(2), max_tokens=8)
    rig.step()
    late = rig.add(range(9))
    for _ in range(3):
        rig.step()
        assert rig.computed.sequence_ids == [early.sequences[0].sequence_id, late.sequences[0].sequence_id]
        assert rig.computed.num_tokens[0] == 1
        assert sum(rig.computed.num_tokens) <= 4


def test_no_more_sequences_run_than_allowed():
    rig = Rig(max_seqs=2)
    for _ in range(3):
        rig.add(range(2), max_tokens=3)
    rig.step()
    rig.step()
    assert (rig.scheduler.num_running, rig.scheduler.num_waiting) == (2, 1)
    rig.run()
    rig.check_idle()


def test_a_spent_budget_lets_nobody_enter():
    rig = Rig(budget=2, max_seqs=2)
    rig.add(range(2), max_tokens=5)
    rig.step()
    rig.add(range(7))
    rig.step()
    assert rig.computed.num_tokens == [1, 1]
    rig.add(range(2))
    rig.step()
    assert rig.plan.entering.group_ids == ()


def test_nobody_overtakes_a_refused_head_and_only_the_head_is_listed_until_it_enters():
    rig = Rig(num_blocks=6)
    rig.add(range(9), max_tokens=8)
    rig.step()
    head, small = rig.add(range(30, 50), max_tokens=1), rig.add(range(2))
    rig.step()
    assert rig.plan.entering.group_ids == [head.group_id, small.group_id]
    assert "needs 5 blocks" in rig.grant.refusal
    rig.step()
    assert rig.plan.entering.group_ids == [head.group_id]
    rig.run()
    assert rig.outputs[small.group_id] == expected_output(range(2), 4)
    rig.check_idle()


def test_a_long_queue_is_listed_in_part():
    rig = Rig(budget=64, max_seqs=64)
    for _ in range(40):
        rig.add(range(2))
    rig.step()
    assert len(rig.plan.entering.group_ids) == 16


def test_the_latest_arrival_gives_way_and_keeps_its_place_in_the_queue():
    rig = Rig(num_blocks=4)
    first, second = rig.add(range(7), max_tokens=8), rig.add(range(20, 27), max_tokens=8)
    rig.step()
    third = rig.add(range(2))
    while not rig.grant.preempted_group_ids:
        rig.step()
    assert rig.grant.preempted_group_ids == [second.group_id]
    assert second.sequences[0].status is SequenceStatus.WAITING
    assert [group.group_id for group in rig.scheduler.groups] == [first.group_id, second.group_id, third.group_id]
    rig.step()
    assert rig.plan.entering.group_ids[0] == second.group_id
    assert rig.plan.entering.num_tokens[0] == len(second.sequences[0].token_ids)
    rig.run()
    assert rig.scheduler.num_preemptions >= 1
    assert rig.outputs[second.group_id] == expected_output(range(20, 27), 8)
    rig.check_idle()


def test_a_preempted_sequence_is_introduced_to_the_worker_again():
    rig = Rig(num_blocks=4)
    rig.add(range(7), max_tokens=8)
    second = rig.add(range(20, 27), max_tokens=8)
    introduced = 0
    while rig.step():
        introduced += [new.sequence_id for new in rig.computed.new_sequences].count(second.sequences[0].sequence_id)
    assert introduced == 2


def test_max_tokens_ends_with_length_and_a_stop_token_with_stop():
    rig = Rig()
    output = expected_output(range(5), 4)
    short = rig.add(range(5), max_tokens=3)
    stopped = rig.add(range(5), max_tokens=10, stop_token_ids=frozenset({output[1]}))
    last = rig.add(range(5), max_tokens=2, stop_token_ids=frozenset({output[1]}))
    rig.run()
    assert rig.outputs[short.group_id] == output[:3]
    assert rig.outputs[stopped.group_id] == output[:2]
    assert rig.reasons == {
        short.group_id: FinishReason.LENGTH,
        stopped.group_id: FinishReason.STOP,
        last.group_id: FinishReason.STOP,
    }
    rig.check_idle()


def test_an_end_that_tokens_do_not_show_frees_the_blocks():
    rig = Rig()
    group = rig.add(range(5), max_tokens=9)
    rig.step()
    rig.scheduler.finish([(group.sequences[0].sequence_id, FinishReason.STOP), (SequenceId(99), FinishReason.STOP)])
    rig.step()
    assert rig.plan.released == [group.sequences[0].sequence_id]
    rig.check_idle()


def test_full_computed_blocks_are_sealed_once_prompt_and_output_alike():
    rig = Rig()
    rig.add(range(6), max_tokens=7)
    sealed = []
    while rig.step():
        sealed += rig.plan.sealed_block_indexes
    assert sealed == [0, 1, 2]  # 12 of the 13 tokens were computed


def test_a_cached_prefix_is_not_computed_again_and_counted_once():
    rig = Rig(budget=16)
    first = rig.add(range(12), max_tokens=2)
    rig.run()
    again = rig.add(range(12), max_tokens=2)
    rig.step()
    assert rig.computed.positions == [8]  # at least one prompt token is computed
    rig.run()
    assert (first.num_cached_tokens, again.num_cached_tokens) == (0, 8)
    assert rig.outputs[again.group_id] == rig.outputs[first.group_id]


class TestAbort:
    """Blocks return from wherever a group is."""

    def test_while_waiting(self):
        rig = Rig()
        group = rig.add(range(5))
        assert rig.scheduler.abort(group.group_id)
        assert not rig.scheduler.abort(group.group_id)
        assert rig.scheduler.plan() is None

    def test_between_chunks(self):
        rig = Rig(budget=4, max_seqs=4)
        group = rig.add(range(15))
        rig.step()
        rig.scheduler.abort(group.group_id)
        rig.run()
        rig.check_idle()

    def test_while_its_admission_is_unanswered(self):
        rig = Rig()
        group = rig.add(range(5))
        plan = rig.scheduler.plan()
        rig.scheduler.abort(group.group_id)
        assert rig.scheduler.plan() is plan
        step = rig.scheduler.apply(rig.pool.grant(plan))
        assert step.sequence_ids == []
        rig.scheduler.commit(rig.model.execute(step))
        rig.run()
        rig.check_idle()

    def test_while_it_computes_its_token_is_ignored(self):
        rig = Rig()
        group, other = rig.add(range(5)), rig.add(range(6))
        rig.computed = rig.scheduler.apply(rig.pool.grant(rig.scheduler.plan()))
        rig.scheduler.abort(group.group_id)
        rig.commit()
        rig.run()
        assert group.group_id not in rig.outputs
        assert rig.outputs[other.group_id] == expected_output(range(6), 4)
        rig.check_idle()

    def test_while_it_is_being_preempted_it_is_not_released_twice(self):
        rig = Rig(num_blocks=4)
        rig.add(range(7), max_tokens=8)
        second = rig.add(range(20, 27), max_tokens=8)
        rig.step()
        rig.step()
        plan = rig.scheduler.plan()
        grant = rig.pool.grant(plan)
        assert grant.preempted_group_ids == [second.group_id]
        rig.scheduler.abort(second.group_id)
        rig.computed = rig.scheduler.apply(grant)
        rig.commit()
        rig.run()
        rig.check_idle()


class TestTransaction:
    """Nothing is half applied."""

    def test_an_unanswered_plan_is_handed_out_again_unchanged(self):
        rig = Rig()
        rig.add(range(5))
        plan = rig.scheduler.plan()
        rig.add(range(6))
        assert rig.scheduler.plan() is plan

    def test_a_grant_for_another_plan_is_refused_and_changes_nothing(self):
        rig, other = Rig(), Rig()
        for each in (rig, other):
            each.add(range(5), max_tokens=9)
        other.step()
        plan = rig.scheduler.plan()
        with pytest.raises(OutOfStepError, match="grant 2 answers no plan"):
            rig.scheduler.apply(other.pool.grant(other.scheduler.plan()))
        assert rig.scheduler.plan() is plan

    def test_a_step_must_be_committed_before_the_plan_after_the_next(self):
        rig = Rig()
        rig.add(range(5))
        rig.hand_out(rig.scheduler.plan())
        rig.hand_out(rig.scheduler.plan())
        with pytest.raises(OutOfStepError, match="step 1 is not committed"):
            rig.scheduler.plan()

    def test_a_plan_must_be_answered_before_the_step_before_it_is_committed(self):
        rig = Rig()
        rig.add(range(5))
        rig.hand_out(rig.scheduler.plan())
        rig.scheduler.plan()
        with pytest.raises(OutOfStepError, match="plan 2 is not answered"):
            rig.commit()

    def test_a_result_without_a_token_is_refused_and_one_for_a_stranger_is_ignored(self):
        rig = Rig()
        rig.add(range(5))
        step = rig.scheduler.apply(rig.pool.grant(rig.scheduler.plan()))
        with pytest.raises(OutOfStepError, match=r"no token for sequences \[1\]"):
            rig.scheduler.commit(StepResult(step.step_id))
        events = rig.scheduler.commit(StepResult(step.step_id, [SequenceId(1), SequenceId(77)], [5, 6], [-1.0, -2.0]))
        assert (events.sequence_ids, events.token_ids) == ([1], [5])


def test_when_memory_is_lost_everything_is_computed_again_in_order_of_arrival():
    rig = Rig(budget=16)
    first, second = rig.add(range(5), max_tokens=6), rig.add(range(6), max_tokens=6)
    rig.step()
    rig.step()
    rig.scheduler.apply(rig.pool.grant(rig.scheduler.plan()))
    rig.pool, rig.model = Pool(8, 4), type(rig.model)(4)
    rig.scheduler.restart_memory(make_shape(8, 4, epoch=2, last_step_id=7))
    rig.step()
    assert rig.plan.step_id == 8
    assert rig.computed.epoch == 2
    assert rig.plan.entering.num_tokens == [7, 8]
    rig.run()
    assert rig.outputs[first.group_id] == expected_output(range(5), 6)
    assert rig.outputs[second.group_id] == expected_output(range(6), 6)
    rig.check_idle()


def test_a_token_budget_that_cannot_decode_what_runs_is_refused():
    with pytest.raises(ValueError, match="max_num_seqs is 9, but must be from 1 to max_num_batched_tokens, which is 8"):
        Scheduler(SchedulerConfig(8, 9), make_shape(8, 4))
