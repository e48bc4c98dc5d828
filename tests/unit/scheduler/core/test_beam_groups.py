"""Beam searches on block tables: forked, copied, released, preempted and ended. Block size 4."""

import pytest

from doubles.model import distribution
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from scheduler.core.beams import num_top_of
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import BeamParams
from scheduler.core.sequence import SequenceStatus
from scheduler.core.steps import Preemption
from scheduler.errors import RequestRefused

THREE = BeamParams(width=3)


def ids(group) -> list[int]:
    return [sequence.sequence_id for sequence in group.sequences]


def test_one_sequence_computes_the_prompt_and_asks_for_the_tokens_that_a_search_needs():
    rig = Rig(num_blocks=12)
    group = rig.add(range(6), num_choices=2, beams=THREE, eos_token_ids=frozenset({5}))
    rig.step()
    assert (rig.computed.num_tokens, rig.computed.num_choices) == ([6], ())
    [new] = rig.computed.new_sequences
    assert new.sampling.num_top_logprobs == num_top_of(THREE, group.request.stop) == 4


def test_the_beams_are_forked_and_share_the_full_blocks_of_the_prompt():
    rig = Rig(num_blocks=12)
    group = rig.add(range(6), beams=THREE)
    rig.step()
    best = [token for token, _ in distribution(tuple(range(6)))[:3]]
    assert [sequence.token_ids[-1] for sequence in group.sequences] == best
    rig.step()
    assert rig.plan.forks == [(1, 2), (1, 3)]
    assert rig.plan.released == []
    assert rig.grant.usage.num_used_device_blocks == 4  # one shared, three own
    assert len(rig.computed.changes.copies) == 2 * 2  # of three owners of the partial block the last writes in place


def test_a_beam_with_children_goes_on_in_place_and_one_without_is_released_after_the_forks():
    rig = Rig(num_blocks=24)
    group = rig.add(range(6), max_tokens=12, beams=THREE)
    rig.step()
    num_forks = num_dead = 0
    while group.live_sequences:
        parents = {sequence.sequence_id: list(sequence.token_ids) for sequence in group.sequences}
        rig.step()
        if not group.live_sequences:
            break
        rig.scheduler.plan()
        plan = rig.scheduler.unanswered_plan
        for sequence in group.sequences:
            origin = {child: parent for parent, child in plan.forks}.get(sequence.sequence_id)
            assert parents[origin or sequence.sequence_id] == sequence.token_ids[:-1]
        assert set(plan.released) == parents.keys() - set(ids(group))
        assert plan.running.sequence_ids == ids(group)
        num_forks, num_dead = num_forks + len(plan.forks), num_dead + len(plan.released)
    assert num_forks == num_dead > 0
    rig.run()
    rig.check_search(group)
    rig.check_idle()


def test_beams_end_by_ending_tokens_and_the_search_with_them():
    ending = frozenset(range(0, 97, 2))
    rig = Rig(num_blocks=24)
    group = rig.add(range(6), max_tokens=12, beams=THREE, eos_token_ids=ending, min_tokens=2)
    assert rig.run() < 12
    rig.check_search(group)
    assert all(hypothesis.beam.token_ids[-1] in ending for hypothesis in group.search.hypotheses)
    rig.check_idle()


def test_all_beams_count_among_the_sequences_that_run_from_the_beginning():
    rig = Rig(num_blocks=30, max_seqs=4)
    rig.add(range(3), beams=THREE, max_tokens=3)
    second = rig.add(range(3), num_choices=2)
    rig.step()
    assert second.sequences[0].status is SequenceStatus.WAITING
    rig.run()
    rig.check_choices(second)


def test_a_search_rides_on_a_cached_prefix():
    rig = Rig(num_blocks=24)
    groups = []
    for _ in range(2):
        groups.append(rig.add(range(13), beams=THREE))
        rig.run()
        rig.check_search(groups[-1])
    assert [group.num_cached_tokens for group in groups] == [0, 12]


def test_a_prompt_in_chunks_begins_the_search_after_the_last():
    rig = Rig(num_blocks=24, budget=5, max_seqs=5)
    group = rig.add(range(12), beams=THREE)
    rig.step()
    assert rig.computed.samples == [False]
    rig.run()
    rig.check_search(group)


@pytest.mark.parametrize("mode", [PreemptionMode.AUTO, PreemptionMode.RECOMPUTE])
def test_a_search_that_gave_way_finds_the_same(mode: PreemptionMode):
    rig = Rig(num_blocks=10, num_host_blocks=24, mode=mode)
    groups = [rig.add(range(start, start + 6), max_tokens=10, beams=THREE) for start in (0, 20)]
    while not (rig.grant and rig.grant.preempted_group_ids):
        assert rig.step()
    expected = Preemption.RECOMPUTE if mode is PreemptionMode.RECOMPUTE else Preemption.SWAP
    assert rig.grant.preempted_modes == [expected]
    rig.run()
    for group in groups:
        rig.check_search(group)
    rig.check_idle()


@pytest.mark.parametrize("num_steps", range(6))
def test_an_abort_at_any_step_gives_everything_back(num_steps: int):
    for is_unanswered in (False, True):
        rig = Rig(num_blocks=24)
        group = rig.add(range(6), max_tokens=8, beams=THREE)
        for _ in range(num_steps):
            rig.step()
        grant = rig.pool.grant(rig.scheduler.plan()) if is_unanswered else None
        rig.scheduler.abort(group.group_id)
        if grant is not None:
            rig.computed = rig.scheduler.apply(grant)
            rig.commit()
        rig.run()
        rig.check_idle()


@pytest.mark.parametrize("budget", [3, 4, 30])
def test_when_memory_is_lost_the_search_goes_on_from_its_beams_which_wait_for_each_other(budget: int):
    rig = Rig(num_blocks=24, budget=budget, max_seqs=3)
    group = rig.add(range(6), max_tokens=12, beams=THREE)
    while group.sequences[0].num_output_tokens < 7:
        rig.step()
    rig.pool, rig.model = Pool(24, 4), type(rig.model)(4)
    rig.scheduler.restart_memory(make_shape(24, 4, epoch=2))
    has_waited = False
    while rig.step():
        has_waited |= any(sequence.row is not None for sequence in group.live_sequences)
    assert has_waited == (budget < 30)
    rig.check_search(group)
    rig.check_idle()


@pytest.mark.parametrize(("loss", "budget"), [(6, 6), (7, 7), (8, 8), (9, 10)])
def test_beams_that_wait_for_others_may_be_swapped_meanwhile_and_are_not_computed_again(loss: int, budget: int):
    rig = Rig(num_blocks=13, num_host_blocks=40, budget=budget, max_seqs=6, mode=PreemptionMode.SWAP)
    groups = [rig.add(range(start, start + 5), max_tokens=14, beams=THREE) for start in (0, 20)]
    for _ in range(loss):
        rig.step()
    rig.pool, rig.model = Pool(13, 4, num_host_blocks=40), type(rig.model)(4)
    rig.scheduler.restart_memory(make_shape(13, 4, epoch=2))
    swapped = set()
    while rig.step():
        beams = [sequence for group in groups for sequence in group.live_sequences]
        swapped |= {beam for beam in beams if beam.row is not None and beam.status is SequenceStatus.SWAPPED}
    assert swapped
    for group in groups:
        rig.check_search(group)
    rig.check_idle()


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"beams": BeamParams(9)}, "beam_width", "asks for 9 beams at once, but must ask for 1 to 8"),
        ({"beams": THREE, "num_choices": 4}, "n", "n is 4, but must be 1 to 3"),
        ({"beams": THREE, "max_tokens": 0}, "max_tokens", "must be at least 1"),
        ({"beams": THREE, "max_tokens": 40}, "max_tokens", "3 beams of 11 blocks each"),
    ],
)
def test_a_search_that_can_never_run_is_refused(more: dict, param: str, words: str):
    with pytest.raises(RequestRefused, match=words) as refused:
        Rig(num_blocks=20).add(range(6), **more)
    assert refused.value.param == param
