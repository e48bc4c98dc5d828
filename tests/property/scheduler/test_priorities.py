"""Whatever the priorities: the urgent go first, all finish with the output they have alone, and nobody starves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.model import ModelDouble, expected_output
from doubles.pool import Pool
from doubles.rig import Rig, make_shape
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.core.sequence import SequenceGroup

BLOCK_SIZE = 4
quick = settings(deadline=None, max_examples=100)

prompts = st.lists(st.integers(0, 3), min_size=1, max_size=14)
jobs = st.tuples(
    prompts,
    st.integers(1, 12),  # tokens to generate
    st.integers(1, 4),  # choices
    st.integers(0, 25),  # when it arrives
    st.integers(-2, 2),  # priority
    st.none() | st.integers(0, 80),  # when it is aborted
)
sizes = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(19, 30),
        "num_host_blocks": st.integers(0, 26),
        "budget": st.integers(4, 24),
        "watermark": st.integers(0, 2),
        "mode": st.sampled_from(PreemptionMode),
    }
)


def rig_of(sizes: dict) -> Rig:
    return Rig(block_size=BLOCK_SIZE, max_seqs=min(sizes["budget"], 6), policy=SchedulingPolicy.PRIORITY, **sizes)


@quick
@given(sizes, st.lists(jobs, min_size=1, max_size=9), st.sets(st.integers(0, 60), max_size=2))
def test_every_choice_has_the_output_it_has_alone_through_preemptions_aborts_and_lost_memory(sizes, work, losses):
    rig = rig_of(sizes)
    groups: dict[int, SequenceGroup] = {}
    for now in range(1500):
        plan = rig.scheduler.plan()
        for index, (prompt, max_tokens, num_choices, arrives_at, priority, ends_at) in enumerate(work):
            if arrives_at == now:
                groups[index] = rig.add(prompt, max_tokens, num_choices, priority=priority)
            elif ends_at == now and index in groups:
                rig.scheduler.abort(groups[index].group_id)
        if now in losses:
            rig.pool = Pool(sizes["num_blocks"], BLOCK_SIZE, 1, sizes["num_host_blocks"])
            rig.model = ModelDouble(BLOCK_SIZE)
            rig.scheduler.restart_memory(
                make_shape(sizes["num_blocks"], BLOCK_SIZE, epoch=now + 2, policy=SchedulingPolicy.PRIORITY)
            )
        elif plan is not None:
            rig.computed = rig.scheduler.apply(rig.pool.grant(plan))
            rig.commit()
        elif len(groups) == len(work) and not rig.scheduler.groups:
            break
    for index, (prompt, max_tokens, num_choices, _, _, ends_at) in enumerate(work):
        for choice in range(num_choices):
            output = rig.choices[groups[index].group_id][choice]
            assert output == expected_output(prompt, len(output), choice_index=choice)
            assert len(output) == max_tokens or ends_at is not None
    rig.check_idle()


@quick
@given(sizes, st.lists(jobs, min_size=2, max_size=9))
def test_nobody_gets_a_first_token_before_a_group_that_outranks_it_and_waited_as_long(sizes, work):
    rig = rig_of(sizes)
    groups = [rig.add(prompt, num, choices, priority=priority) for prompt, num, choices, _, priority, _ in work]
    groups.sort(key=SchedulingPolicy.PRIORITY.rank)
    started: list[int] = []
    while rig.step():
        started += [g.group_id for g in groups if g.group_id in rig.outputs and g.group_id not in started]
    assert started == [group.group_id for group in groups]
    for group in groups:
        rig.check_choices(group)


@quick
@given(sizes, st.lists(jobs, min_size=2, max_size=9))
def test_an_arrival_makes_each_less_urgent_group_give_way_for_it_at_most_once(sizes, work):
    rig = rig_of(sizes | {"num_blocks": 80})  # memory is no reason to give way
    groups: list[SequenceGroup] = []
    for now in range(1000):
        for prompt, max_tokens, num_choices, arrives_at, priority, _ in work:
            if arrives_at == now:
                groups.append(rig.add(prompt, max_tokens, num_choices, priority=priority))
        if not rig.step() and len(groups) == len(work):
            break
    for group in groups:
        num_more_urgent = sum(SchedulingPolicy.PRIORITY.outranks(other, group) for other in groups)
        assert group.num_preemptions <= num_more_urgent
        rig.check_choices(group)
    rig.check_idle()
