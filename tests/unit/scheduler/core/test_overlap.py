"""While one step computes the next is handed out, on tokens that are not known yet."""

from dataclasses import replace

import pytest

from doubles.constraint import Spelling
from doubles.model import expected_output, next_token
from doubles.rig import Rig, make_request, make_shape
from scheduler.core.preemption import PreemptionMode
from scheduler.core.prefix_hash import PrefixDomain, PrefixHasher
from scheduler.core.request import BeamParams, FinishReason, SequenceId
from scheduler.core.steps import NO_TOKEN, SAMPLED_TOKEN, Plan, StepResult

PROMPT = [1, 2, 3, 4, 5]


def rig_with(num_blocks: int = 32, **settings: object) -> Rig:
    return Rig(num_blocks, overlaps=True, **settings)  # type: ignore[arg-type]


def hand_out(rig: Rig) -> Plan:
    """Hands the next step out, which must be possible now."""
    plan = rig.scheduler.plan()
    assert plan is not None
    rig.hand_out(plan)
    return plan


def test_a_sequence_goes_on_from_the_token_that_is_being_sampled():
    rig = rig_with()
    rig.add(PROMPT, max_tokens=6)
    hand_out(rig)
    hand_out(rig)
    assert (rig.computed.token_ids, rig.computed.positions) == ([SAMPLED_TOKEN], [5])
    rig.commit()
    hand_out(rig)
    assert (rig.computed.token_ids, rig.computed.positions) == ([SAMPLED_TOKEN], [6])
    rig.run()
    assert rig.outputs[1] == expected_output(PROMPT, 6)
    rig.check_idle()


def test_overlap_takes_no_step_more_where_only_max_tokens_ends_an_output():
    num_steps = []
    for overlaps in (False, True):
        rig = Rig(32, overlaps=overlaps)
        rig.add(PROMPT, max_tokens=6)
        rig.run()
        num_steps.append(rig.scheduler.num_steps)
        assert rig.model.num_computed == 5 + 5
    assert num_steps[0] == num_steps[1]


@pytest.mark.parametrize("max_tokens", [1, 2])
def test_the_last_token_allowed_is_not_gone_on_from(max_tokens):
    rig = rig_with()
    rig.add(PROMPT, max_tokens=max_tokens)
    for _ in range(max_tokens):
        hand_out(rig)
    if max_tokens == 2:
        rig.commit()
    assert len(rig.scheduler.unanswered_steps) == 1
    assert rig.scheduler.plan() is None


def test_a_prompt_goes_on_chunk_by_chunk():
    rig = rig_with(budget=3, max_seqs=2)
    rig.add(PROMPT, max_tokens=3)
    hand_out(rig)
    hand_out(rig)
    assert (rig.computed.token_ids, rig.computed.samples) == ([4, 5], [True])
    rig.run()
    assert rig.outputs[1] == expected_output(PROMPT, 3)


def test_a_token_sampled_after_a_stop_token_is_discarded_and_its_blocks_return_with_the_next_plan():
    output = expected_output(PROMPT, 6)
    rig = rig_with()
    group = rig.add(PROMPT, max_tokens=6, stop_token_ids=frozenset({output[1]}))
    hand_out(rig)
    hand_out(rig)
    rig.commit()
    hand_out(rig)
    rig.commit()  # which samples the stop token while the step after it is in hand
    assert rig.reasons[group.group_id] is FinishReason.STOP
    assert rig.scheduler.unanswered_steps[0].sequence_ids == [1]
    rig.commit()
    assert rig.outputs[group.group_id] == output[:2]
    assert hand_out(rig).released == [1]
    rig.run()
    rig.check_idle()


def test_a_stop_string_found_while_the_next_step_is_in_hand_discards_what_that_samples():
    rig = rig_with()
    group = rig.add(PROMPT, max_tokens=9)
    hand_out(rig)
    hand_out(rig)
    rig.commit()
    rig.scheduler.finish([(group.sequences[0].sequence_id, FinishReason.STOP)])
    rig.commit()
    assert rig.outputs[group.group_id] == expected_output(PROMPT, 1)
    rig.run()
    rig.check_idle()


def test_a_block_is_sealed_when_the_step_that_filled_it_is_committed_and_not_before():
    rig = rig_with()
    rig.add(PROMPT[:3], max_tokens=9)
    hand_out(rig)
    assert hand_out(rig).sealed_block_indexes == []  # its own step fills block 0
    rig.commit()
    assert hand_out(rig).sealed_block_indexes == []  # which is not committed yet
    rig.commit()
    plan = hand_out(rig)
    hashes = bytearray()
    PrefixHasher(PrefixDomain(b"checksum"), 4).extend(hashes, [1, 2, 3, next_token([1, 2, 3])])
    assert (plan.sealed_block_indexes, plan.sealed_hashes) == ([0], bytes(hashes))


def no_token(step_id: int) -> StepResult:
    return StepResult(step_id, [SequenceId(1)], [NO_TOKEN], [0.0])


def test_the_slot_of_a_discarded_token_is_never_sealed():
    rig = rig_with()
    rig.add(PROMPT[:3], max_tokens=9)
    hand_out(rig)
    first = rig.computed
    hand_out(rig)  # fills block 0 with whatever stands for no token
    second = rig.computed
    rig.scheduler.commit(no_token(first.step_id))
    rig.scheduler.commit(no_token(second.step_id))
    plan = hand_out(rig)
    assert (plan.sealed_block_indexes, plan.released) == ([], [1])


def test_a_block_that_an_ended_sequence_filled_before_is_sealed_and_then_released():
    output = expected_output(PROMPT[:3], 2)
    rig = rig_with()
    rig.add(PROMPT[:3], max_tokens=9, stop_token_ids=frozenset({output[1]}))
    hand_out(rig)
    hand_out(rig)
    rig.commit()
    hand_out(rig)
    rig.commit()
    plan = rig.scheduler.plan()
    assert plan is None  # nothing to compute before the step in hand is done
    rig.commit()
    plan = hand_out(rig)
    assert (plan.sealed_sequence_ids, plan.sealed_block_indexes, plan.released) == ([1], [0], [1])
    rig.run()
    rig.check_idle()


@pytest.mark.parametrize("mode", [PreemptionMode.SWAP, PreemptionMode.RECOMPUTE])
def test_a_victim_keeps_the_token_that_it_was_sampling_when_it_gave_way(mode):
    rig = rig_with(num_blocks=4, num_host_blocks=8, mode=mode)
    groups = [rig.add([i, 1, 2, 3, 4, 5, 6], max_tokens=8) for i in range(2)]
    rig.run()
    assert rig.scheduler.num_preemptions
    for group in groups:
        rig.check_choices(group)
    rig.check_idle()


def test_a_grammar_waits_for_its_token_and_so_does_the_whole_step():
    rig = rig_with()
    wanted = expected_output(PROMPT, 3)
    held = rig.scheduler.add(replace(make_request(PROMPT, 3), constraint=Spelling(tuple(wanted))))
    free = rig.add([7, 8, 9], max_tokens=6)
    hand_out(rig)
    assert rig.scheduler.plan() is None
    rig.commit()
    assert hand_out(rig).running.num_new_slots == [1, 1]
    assert SAMPLED_TOKEN not in rig.computed.token_ids
    rig.run()
    assert rig.outputs == {held.group_id: wanted, free.group_id: expected_output([7, 8, 9], 6)}
    rig.check_idle()


def test_a_search_waits_for_its_candidates():
    rig = rig_with()
    group = rig.add(PROMPT, max_tokens=5, beams=BeamParams(2))
    hand_out(rig)
    assert rig.scheduler.plan() is None
    rig.run()
    rig.check_search(group)


def test_several_choices_wait_for_the_end_of_their_prompt_alone():
    rig = rig_with()
    group = rig.add(PROMPT, max_tokens=5, num_choices=3)
    hand_out(rig)
    assert rig.scheduler.plan() is None
    rig.commit()
    hand_out(rig)
    assert len(hand_out(rig).running.sequence_ids) == 3
    assert rig.computed.token_ids == [SAMPLED_TOKEN] * 3
    rig.run()
    rig.check_choices(group)
    rig.check_idle()


def test_an_arrival_enters_while_a_step_is_in_hand():
    rig = rig_with()
    rig.add(PROMPT, max_tokens=6)
    hand_out(rig)
    late = rig.add([7, 8, 9], max_tokens=6)
    hand_out(rig)
    assert rig.computed.sequence_ids == [1, 2]
    rig.run()
    rig.check_choices(late)


def test_a_request_aborted_with_two_steps_in_hand_is_released_once():
    rig = rig_with()
    group = rig.add(PROMPT, max_tokens=20)
    other = rig.add([7, 8, 9], max_tokens=6)
    hand_out(rig)
    hand_out(rig)
    rig.scheduler.abort(group.group_id)
    rig.run()
    assert group.group_id not in rig.outputs
    rig.check_choices(other)
    rig.check_idle()


def test_lost_memory_drops_both_steps_in_hand():
    rig = rig_with(8)
    rig.add(PROMPT, max_tokens=6)
    hand_out(rig)
    hand_out(rig)
    rig.pool, rig.model = type(rig.pool)(8, 4), type(rig.model)(4)
    rig.scheduler.restart_memory(make_shape(8, 4, epoch=2))
    assert rig.scheduler.unanswered_steps == []
    rig.run()
    assert rig.outputs[1] == expected_output(PROMPT, 6)
    rig.check_idle()
