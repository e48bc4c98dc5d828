"""Whatever the pools, the budget and the order of events: every choice finishes with the output it has alone."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.model import ModelDouble, expected_output
from doubles.pool import Pool
from doubles.rig import make_shape
from doubles.sizes import BLOCK_SIZE, Sizes
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import FinishReason
from scheduler.core.sequence import SequenceGroup

MAX_SEQS = 6
quick = settings(deadline=None, max_examples=120)


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    num_choices: int
    arrives_at: int
    ends_at: float | None = None
    salt: str = ""


prompts = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=14),
    st.integers(1, 14).map(lambda n: [i % 5 for i in range(n)]),  # shared prefixes
)
choices, arrivals = st.integers(1, 4), st.integers(0, 25)
jobs = st.builds(Job, prompts, st.integers(1, 12), choices, arrivals)
ends = st.none() | st.integers(0, 160).map(lambda n: n / 2)
aborted_jobs = st.builds(Job, prompts, st.integers(1, 12), choices, arrivals, ends, st.sampled_from(["", "", "a"]))
modes = st.sampled_from(PreemptionMode)
# Every job fits: the largest shares 3 blocks, and each of its 4 choices has 4 more.
sizes = st.builds(
    Sizes, st.integers(19, 26), st.integers(0, 26), st.integers(4, 24), st.integers(0, 2), modes, st.booleans()
)


@quick
@given(sizes, st.lists(jobs, min_size=1, max_size=9), st.sets(st.integers(0, 96), max_size=20))
def test_every_choice_finishes_with_the_output_it_has_alone(sizes: Sizes, work: list[Job], stops: set[int]) -> None:
    rig = sizes.rig(MAX_SEQS)
    groups: list[SequenceGroup] = []
    for now in range(2000):
        groups += [
            rig.add(job.prompt, job.max_tokens, job.num_choices, stop_token_ids=frozenset(stops))
            for job in work
            if job.arrives_at == now
        ]
        if not rig.step() and len(groups) == len(work):
            break
    for group in groups:
        rig.check_choices(group)
        assert rig.reasons[group.group_id] in (FinishReason.LENGTH, FinishReason.STOP)
    rig.check_idle()


@quick
@given(sizes, st.lists(jobs, min_size=2, max_size=9))
def test_nobody_gets_a_first_token_before_an_earlier_arrival(sizes: Sizes, work: list[Job]) -> None:
    rig = sizes.rig(MAX_SEQS)
    groups = [rig.add(job.prompt, job.max_tokens, job.num_choices) for job in work]
    started: list[int] = []
    while rig.step():
        started += [g.group_id for g in groups if g.group_id in rig.outputs and g.group_id not in started]
        running = [int(group_id) for group_id in rig.plan.running.group_ids]
        assert running == sorted(running)
        assert len(rig.computed.sequence_ids) <= min(sizes.budget, MAX_SEQS)
        assert len(rig.computed.token_ids) <= sizes.budget
        if rig.grant is not None and rig.grant.preempted_group_ids:
            assert not rig.grant.admitted_group_ids
    assert started == sorted(started)
    for group in groups:
        rig.check_choices(group)


@quick
@given(sizes, st.lists(aborted_jobs, min_size=1, max_size=8), st.sets(st.integers(0, 60), max_size=4))
def test_aborts_and_lost_memory_at_any_moment_of_a_step_leave_the_others_unchanged(
    sizes: Sizes, work: list[Job], losses: set[int]
) -> None:
    rig = sizes.rig(MAX_SEQS)
    groups: dict[int, SequenceGroup] = {}

    def meet_jobs(now: float) -> None:
        """Arrivals at whole times, when a plan is unanswered; aborts then, or half a time later, before a commit."""
        for index, job in enumerate(work):
            if job.arrives_at == now:
                groups[index] = rig.add(job.prompt, job.max_tokens, job.num_choices, job.salt)
            elif job.ends_at == now and index in groups:
                rig.scheduler.abort(groups[index].group_id)

    for now in range(1000):
        plan = rig.scheduler.plan()
        meet_jobs(now)
        if now in losses:
            rig.pool = Pool(sizes.num_blocks, BLOCK_SIZE, 1, sizes.num_host_blocks)
            rig.model = ModelDouble(BLOCK_SIZE)
            rig.scheduler.restart_memory(make_shape(sizes.num_blocks, BLOCK_SIZE, epoch=now + 2))
        elif plan is not None:
            rig.hand_out(plan)
        meet_jobs(now + 0.5)
        rig.commit_when_due(plan)
    for index, group in groups.items():
        job = work[index]
        for choice in range(job.num_choices):
            output = rig.choices[group.group_id][choice]
            assert output == expected_output(job.prompt, len(output), choice_index=choice)
            assert len(output) == job.max_tokens or job.ends_at is not None
    rig.check_idle()


@quick
@given(sizes, st.lists(jobs, min_size=1, max_size=6), st.data())
def test_choices_that_end_by_their_text_end_alone(sizes: Sizes, work: list[Job], data: st.DataObject) -> None:
    rig = sizes.rig(MAX_SEQS)
    groups = [rig.add(job.prompt, job.max_tokens, job.num_choices) for job in work]
    while rig.step():
        # As stop strings do: only what has just got a token, before the next plan.
        sampled = [sequence for group in rig.scheduler.groups for sequence in group.running_sequences]
        ended = data.draw(st.lists(st.sampled_from(sampled), max_size=1)) if sampled else []
        if ended and ended[0].num_branches == 1:
            rig.scheduler.finish([(ended[0].sequence_id, FinishReason.STOP)])
        rig.scheduler.check()
    for job, group in zip(work, groups, strict=True):
        for choice in range(job.num_choices):
            output = rig.choices[group.group_id][choice]
            assert output == expected_output(job.prompt, len(output), choice_index=choice)
    rig.check_idle()
