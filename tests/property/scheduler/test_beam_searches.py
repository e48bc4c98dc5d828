"""Whatever the pools, the budget and the order of events: every search finds what it finds alone with ample memory."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.model import ModelDouble
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from doubles.sizes import BLOCK_SIZE, Sizes
from scheduler.core.preemption import PreemptionMode
from scheduler.core.request import BeamParams, EarlyStopping
from scheduler.core.sequence import SequenceGroup


@dataclass
class Job:
    """A search, or as many choices as it would have beams."""

    prompt: list[int]
    max_tokens: int
    width: int
    is_search: bool
    arrives_at: int
    ends_at: int | None
    length_penalty: float
    early_stopping: EarlyStopping

    def enter(self, rig: Rig) -> SequenceGroup:
        if not self.is_search:
            return rig.add(self.prompt, self.max_tokens, self.width)
        beams = BeamParams(self.width, self.length_penalty, self.early_stopping)
        return rig.add(self.prompt, self.max_tokens, beams=beams, eos_token_ids=frozenset(range(6)))


jobs = st.builds(
    Job,
    prompt=st.integers(1, 11).map(lambda n: [i % 5 for i in range(n)]),
    max_tokens=st.integers(1, 13),
    width=st.integers(1, 4),
    is_search=st.sampled_from([True, True, False]),
    arrives_at=st.integers(0, 8),
    ends_at=st.none() | st.none() | st.integers(0, 60),
    length_penalty=st.sampled_from([-1.0, 0.0, 1.0, 2.0]),
    early_stopping=st.sampled_from(EarlyStopping),
)
# Every job fits: the largest shares 2 blocks, and each of its 4 beams has 4 more.
sizes = st.builds(
    Sizes,
    st.just(18),
    st.sampled_from([0, 4, 40]),
    st.integers(4, 30),
    st.integers(0, 2),
    st.sampled_from(PreemptionMode),
    st.booleans(),
)


@settings(deadline=None, max_examples=150)
@given(sizes, st.lists(jobs, min_size=4, max_size=10), st.sets(st.integers(0, 50), max_size=3))
def test_every_search_finds_what_it_finds_alone(sizes: Sizes, work: list[Job], losses: set[int]) -> None:
    rig = sizes.rig(max_seqs=sizes.budget)
    groups: dict[int, SequenceGroup] = {}
    for now in range(1000):
        plan = rig.scheduler.plan()
        for index, job in enumerate(work):
            if job.arrives_at == now:
                groups[index] = job.enter(rig)
            elif job.ends_at == now and index in groups:
                rig.scheduler.abort(groups[index].group_id)
        if now in losses:
            rig.pool = Pool(sizes.num_blocks, BLOCK_SIZE, sizes.watermark, sizes.num_host_blocks)
            rig.model = ModelDouble(BLOCK_SIZE)
            rig.scheduler.restart_memory(make_shape(sizes.num_blocks, BLOCK_SIZE, epoch=now + 2))
        elif plan is not None:
            rig.hand_out(plan)
        if not rig.commit_when_due(plan) and plan is None and len(groups) == len(work) and now > 60:
            break
    for index, group in groups.items():
        if work[index].ends_at is None or group.group_id in rig.ended_searches:
            check = rig.check_search if work[index].is_search else rig.check_choices
            check(group)
    rig.check_idle()
