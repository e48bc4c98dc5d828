"""Whatever the priorities: the urgent go first, all finish with the output they have alone, and nobody starves."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.model import ModelDouble, expected_output
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from doubles.sizes import BLOCK_SIZE, Sizes
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import BeamParams
from scheduler.core.sequence import SequenceGroup

MAX_SEQS = 6
PRIORITY = SchedulingPolicy.PRIORITY
quick = settings(deadline=None, max_examples=100)


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    num_choices: int
    is_search: bool
    priority: int
    arrives_at: int
    ends_at: int | None

    def enter(self, rig: Rig) -> SequenceGroup:
        if not self.is_search:
            return rig.add(self.prompt, self.max_tokens, self.num_choices, priority=self.priority)
        beams = BeamParams(self.num_choices, 1.0)
        return rig.add(
            self.prompt, self.max_tokens, beams=beams, eos_token_ids=frozenset(range(6)), priority=self.priority
        )


jobs = st.builds(
    Job,
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=14),
    max_tokens=st.integers(1, 12),
    num_choices=st.integers(1, 4),
    is_search=st.sampled_from([False, False, True]),
    priority=st.integers(-2, 2),
    arrives_at=st.integers(0, 25),
    ends_at=st.none() | st.integers(0, 80),
)
# Every job fits: the largest shares 3 blocks, and each of its 4 choices has 4 more.
sizes = st.builds(
    Sizes,
    st.integers(21, 30),
    st.integers(0, 26),
    st.integers(4, 24),
    st.integers(0, 2),
    st.sampled_from(PreemptionMode),
    st.booleans(),
)


def check_output(rig: Rig, job: Job, group: SequenceGroup) -> None:
    """The output of a job that ended by itself is the one it has alone; that of an aborted one is its beginning."""
    if job.is_search:
        if job.ends_at is None or group.group_id in rig.ended_searches:
            rig.check_search(group)
        return
    for choice in range(job.num_choices):
        output = rig.choices[group.group_id][choice]
        assert output == expected_output(job.prompt, len(output), choice_index=choice)
        assert len(output) == job.max_tokens or job.ends_at is not None


@quick
@given(sizes, st.lists(jobs, min_size=1, max_size=9), st.sets(st.integers(0, 60), max_size=2))
def test_every_output_is_the_one_it_has_alone_through_preemptions_aborts_and_lost_memory(sizes, work, losses):
    rig = sizes.rig(MAX_SEQS, PRIORITY)
    groups: dict[int, SequenceGroup] = {}
    for now in range(1500):
        plan = rig.scheduler.plan()
        for index, job in enumerate(work):
            if job.arrives_at == now:
                groups[index] = job.enter(rig)
            elif job.ends_at == now and index in groups:
                rig.scheduler.abort(groups[index].group_id)
        if now in losses:
            rig.pool = Pool(sizes.num_blocks, BLOCK_SIZE, 1, sizes.num_host_blocks)
            rig.model = ModelDouble(BLOCK_SIZE)
            rig.scheduler.restart_memory(make_shape(sizes.num_blocks, BLOCK_SIZE, epoch=now + 2, policy=PRIORITY))
        elif plan is not None:
            rig.hand_out(plan)
        is_over = len(groups) == len(work) and not rig.scheduler.groups
        if not rig.commit_when_due(plan) and plan is None and is_over:
            break
    for index, job in enumerate(work):
        check_output(rig, job, groups[index])
    rig.check_idle()


@quick
@given(sizes, st.lists(jobs, min_size=2, max_size=9))
def test_of_those_that_wait_together_nobody_starts_before_one_that_goes_first(sizes, work):
    rig = sizes.rig(MAX_SEQS, PRIORITY)
    groups = sorted((job.enter(rig) for job in work), key=PRIORITY.rank)
    started: list[int] = []
    while rig.step():
        started += [g.group_id for g in groups if g.num_cached_tokens is not None and g.group_id not in started]
    assert started == [group.group_id for group in groups]


@quick
@given(sizes, st.lists(jobs, min_size=2, max_size=9))
def test_an_arrival_makes_each_less_urgent_group_give_way_for_it_at_most_once(sizes, work):
    sizes.num_blocks = 120  # memory is no reason to give way
    rig = sizes.rig(MAX_SEQS, PRIORITY)
    groups: list[SequenceGroup] = []
    for now in range(1000):
        groups += [job.enter(rig) for job in work if job.arrives_at == now]
        if not rig.step() and len(groups) == len(work):
            break
    for group in groups:
        assert group.num_preemptions <= sum(PRIORITY.outranks(other, group) for other in groups)
    rig.check_idle()
