"""Whatever the pool, the budget and the order of events: every request finishes with the output it has alone."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.model import ModelDouble, expected_output
from doubles.pool import PoolDouble
from doubles.real_pool import RealPool
from doubles.rig import Rig, make_shape
from scheduler.core.request import FinishReason
from scheduler.core.sequence import SequenceGroup

BLOCK_SIZE = 4
quick = settings(deadline=None, max_examples=80)


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    arrives_at: int
    ends_at: float | None = None


prompts = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=18),
    st.integers(1, 18).map(lambda n: [i % 5 for i in range(n)]),  # shared prefixes
)
jobs = st.builds(Job, prompts, st.integers(1, 14), st.integers(0, 25))
moments = st.sets(st.integers(0, 60), max_size=4)
aborted_jobs = st.builds(
    Job, prompts, st.integers(1, 14), st.integers(0, 25), st.none() | st.integers(0, 120).map(lambda n: n / 2)
)


pool_classes = st.sampled_from([PoolDouble, RealPool])
PoolClass = type[PoolDouble] | type[RealPool]


def make_rig(pool_class: PoolClass, num_blocks: int, budget: int, watermark: int) -> Rig:
    rig = Rig(num_blocks, BLOCK_SIZE, budget=budget, max_seqs=min(budget, 6))
    rig.pool = pool_class(num_blocks, BLOCK_SIZE, watermark)
    return rig


@quick
@given(pool_classes, st.lists(jobs, min_size=1, max_size=9), st.integers(8, 24), st.integers(1, 24), st.integers(0, 2))
def test_every_request_finishes_with_the_output_it_has_alone(
    pool_class: PoolClass, work: list[Job], num_blocks: int, budget: int, watermark: int
) -> None:
    rig = make_rig(pool_class, num_blocks, budget, watermark)
    groups: list[tuple[Job, SequenceGroup]] = []
    for now in range(1000):
        groups += [(job, rig.add(job.prompt, job.max_tokens)) for job in work if job.arrives_at == now]
        if not rig.step() and len(groups) == len(work):
            break
    for job, group in groups:
        assert rig.outputs[group.group_id] == expected_output(job.prompt, job.max_tokens)
        assert rig.reasons[group.group_id] is FinishReason.LENGTH
    rig.check_idle()


@quick
@given(pool_classes, st.lists(jobs, min_size=2, max_size=9), st.integers(8, 12))
def test_nobody_gets_a_first_token_before_an_earlier_arrival(
    pool_class: PoolClass, work: list[Job], num_blocks: int
) -> None:
    rig = make_rig(pool_class, num_blocks, 8, 0)
    groups = [rig.add(job.prompt, job.max_tokens) for job in work]
    started: list[int] = []
    while rig.step():
        started += [g.group_id for g in groups if g.group_id in rig.outputs and g.group_id not in started]
        running = [int(group_id) for group_id in rig.plan.running.group_ids]
        assert running == sorted(running)
        if rig.grant is not None and rig.grant.preempted_group_ids:
            assert not rig.grant.admitted_group_ids
    assert started == sorted(started)
    assert all(len(rig.outputs[group.group_id]) == job.max_tokens for group, job in zip(groups, work, strict=True))


@quick
@given(
    pool_classes,
    st.lists(aborted_jobs, min_size=1, max_size=8),
    st.integers(8, 16),
    st.sets(st.integers(0, 60), max_size=4),
)
def test_aborts_and_lost_memory_at_any_moment_of_a_step_leave_the_others_unchanged(
    pool_class: PoolClass, work: list[Job], num_blocks: int, losses: set[int]
) -> None:
    rig = make_rig(pool_class, num_blocks, 8, 1)
    groups: dict[int, SequenceGroup] = {}

    def meet_jobs(now: float) -> None:
        """Arrivals at whole times, when a plan is unanswered; aborts then, or half a time later, while it computes."""
        for index, job in enumerate(work):
            if job.arrives_at == now:
                groups[index] = rig.add(job.prompt, job.max_tokens)
            elif job.ends_at == now and index in groups:
                rig.scheduler.abort(groups[index].group_id)

    for now in range(1000):
        plan = rig.scheduler.plan()
        meet_jobs(now)
        if now in losses:
            rig.pool, rig.model = pool_class(num_blocks, BLOCK_SIZE, 1), ModelDouble(BLOCK_SIZE)
            rig.scheduler.restart_memory(make_shape(num_blocks, BLOCK_SIZE, epoch=now + 2))
        elif plan is not None:
            rig.computed = rig.scheduler.apply(rig.pool.grant(plan))
            meet_jobs(now + 0.5)
            rig.commit()
    for index, group in groups.items():
        output = rig.outputs[group.group_id]
        assert output == expected_output(work[index].prompt, len(output))
        assert len(output) == work[index].max_tokens or work[index].ends_at is not None
    rig.check_idle()
