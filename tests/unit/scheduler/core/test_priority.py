"""The more urgent run first. Block size 4 and 8 blocks unless said."""

import pytest

from doubles.rig import Rig, make_request
from scheduler.core.order import SchedulingPolicy
from scheduler.core.sequence import SequenceGroup, SequenceStatus
from scheduler.errors import RequestRefused


def priority_rig(**sizes: int) -> Rig:
    return Rig(policy=SchedulingPolicy.PRIORITY, **sizes)


def computed_groups(rig: Rig) -> list[int]:
    """Groups that compute in the last step."""
    groups = {s.sequence_id: g.group_id for g in rig.scheduler.groups for s in g.sequences}
    return [groups[sequence_id] for sequence_id in rig.computed.sequence_ids if sequence_id in groups]


def finish_all(rig: Rig, groups: list[SequenceGroup]) -> None:
    rig.run()
    for group in groups:
        rig.check_choices(group)
    rig.check_idle()


def test_the_more_urgent_enter_first_and_equally_urgent_ones_as_they_arrive():
    rig = priority_rig()
    groups = [rig.add(range(2), priority=priority) for priority in (5, 0, 5, -1)]
    rig.step()
    assert rig.plan.entering.group_ids == [groups[i].group_id for i in (3, 1, 0, 2)]
    finish_all(rig, groups)


def test_with_ten_running_a_more_urgent_one_runs_next_and_the_others_finish_as_if_alone():
    rig = priority_rig(num_blocks=64, max_seqs=10)
    routine = [rig.add([i, 1, 2], max_tokens=12, priority=1) for i in range(10)]
    while rig.scheduler.num_running < 10:
        rig.step()
    urgent = rig.add(range(6), max_tokens=5)
    rig.step()
    assert urgent.group_id in computed_groups(rig)
    assert [group.num_preemptions for group in routine] == [0] * 9 + [1]
    assert routine[-1].sequences[0].status is SequenceStatus.WAITING
    assert rig.scheduler.num_preemptions == 1
    assert rig.scheduler.gave_way == [routine[-1].group_id]
    finish_all(rig, [*routine, urgent])
    ended = list(rig.reasons)
    assert (ended[0], ended[-1]) == (urgent.group_id, routine[-1].group_id)


def test_an_equally_urgent_arrival_makes_nobody_give_way():
    rig = priority_rig(max_seqs=1)
    first, second = rig.add(range(3), priority=2), rig.add(range(3), priority=2)
    while first.group_id not in rig.reasons:
        rig.step()
        assert second.sequences[0].status is SequenceStatus.WAITING
    finish_all(rig, [first, second])
    assert rig.scheduler.num_preemptions == 0


def test_first_come_first_served_knows_no_urgency():
    rig = Rig()
    with pytest.raises(RequestRefused, match="priority is -3, but must be 0: the server's scheduling policy is fcfs"):
        rig.add(range(3), priority=-3)
    assert rig.scheduler.groups == ()


def test_only_as_many_give_way_as_the_urgent_group_needs_and_never_in_vain():
    rig = priority_rig(num_blocks=40, max_seqs=4)
    equal = [rig.add(range(3), max_tokens=6, priority=0) for _ in range(2)]
    routine = [rig.add([9, i], max_tokens=20, priority=1) for i in range(2)]
    rig.step()
    wide = rig.add(range(5), num_choices=3, priority=-1)
    rig.step()
    assert [group.num_preemptions for group in [*equal, *routine]] == [0, 1, 1, 1]
    rig.run()
    rig = priority_rig(num_blocks=40, max_seqs=4)
    equal = [rig.add(range(3), max_tokens=6, priority=0) for _ in range(2)]
    routine = [rig.add([9, i], max_tokens=20, priority=1) for i in range(2)]
    rig.step()
    wide = rig.add(range(5), num_choices=3, priority=0)
    rig.step()
    assert [group.num_preemptions for group in [*equal, *routine]] == [0, 0, 0, 0]  # two seats would not be enough
    finish_all(rig, [*equal, *routine, wide])


def test_an_urgent_group_gets_blocks_that_less_urgent_ones_hold():
    rig = priority_rig(num_blocks=8)
    routine = [rig.add([i, *range(8)], max_tokens=6, priority=1) for i in range(2)]
    rig.step()
    rig.step()
    urgent = rig.add(range(20, 36), max_tokens=4)
    for _ in range(3):
        rig.step()
    assert urgent.sequences[0].status is SequenceStatus.RUNNING
    assert rig.scheduler.num_preemptions >= 1
    assert all(group.num_preemptions <= 1 for group in routine)
    finish_all(rig, [*routine, urgent])


def test_a_long_prompt_pauses_while_a_more_urgent_one_enters():
    rig = priority_rig(num_blocks=30, budget=8)
    routine = rig.add(range(40), priority=1)
    rig.step()
    urgent = rig.add(range(60, 72))
    rig.step()
    assert computed_groups(rig) == [urgent.group_id]
    rig.step()
    assert rig.plan.running.group_ids == [urgent.group_id, routine.group_id]
    assert rig.computed.num_tokens == [4, 4]
    assert rig.scheduler.num_preemptions == 0
    finish_all(rig, [routine, urgent])


def test_who_gave_way_finds_its_full_blocks_cached():
    rig = priority_rig(num_blocks=16, max_seqs=1)
    routine = rig.add(range(12), max_tokens=6, priority=1)
    rig.step()
    rig.step()
    urgent = rig.add(range(50, 53), max_tokens=2)
    rig.step()
    while routine.sequences[0].status is SequenceStatus.WAITING:
        rig.step()
    assert rig.grant is not None
    assert rig.grant.num_present_tokens == [12]
    finish_all(rig, [routine, urgent])


def test_choices_whose_fork_is_not_planned_yet_give_way_with_their_trunk():
    rig = priority_rig(num_blocks=24, max_seqs=3)
    routine = rig.add(range(6), max_tokens=5, num_choices=3, priority=1)
    rig.step()
    urgent = rig.add(range(3))
    rig.step()
    assert rig.plan.forks == []
    assert rig.plan.released == [routine.sequences[0].sequence_id]
    finish_all(rig, [routine, urgent])


def test_a_group_that_gave_way_can_be_ended():
    rig = priority_rig(max_seqs=1)
    routine = rig.add(range(5), priority=1)
    rig.step()
    rig.step()
    urgent = rig.add(range(3))
    rig.scheduler.plan()
    rig.scheduler.abort(routine.group_id)
    finish_all(rig, [urgent])


def test_the_order_is_kept_when_the_memory_is_lost():
    rig = priority_rig()
    groups = [rig.add(range(2), priority=priority) for priority in (3, 1, 2)]
    rig.step()
    rig.scheduler.restart_memory(rig.scheduler.memory)
    rig.scheduler.check()
    assert make_request(range(2)).priority == 0
    plan = rig.scheduler.plan()
    assert plan is not None
    assert plan.entering.group_ids == [groups[i].group_id for i in (1, 2, 0)]
