"""Forks share whole tables; a shared block is never written (paper §4.4)."""

from doubles.memory_rig import Entering, Running, copies


def test_a_fork_shares_every_block_and_copies_the_partial_one_once(rig):
    rig.prompt(1, 6)
    first, second = rig.blocks(1)
    grant = rig.step(forks=[(1, 2)])
    assert [(fork.parent_id, fork.child_id) for fork in grant.changes.forks] == [(1, 2)]
    assert rig.blocks(2) == [first, second]
    assert rig.space.count_of(first) == rig.space.count_of(second) == 2
    grant = rig.step(running=[Running(1, {1: 1, 2: 1})])
    assert [source for source, _ in copies(grant)] == [second]
    assert rig.blocks(1)[0] == rig.blocks(2)[0] == first
    assert rig.space.count_of(first) == 2
    assert {rig.blocks(1)[1], rig.blocks(2)[1]} == {second, copies(grant)[0][1]}


def test_the_last_owner_writes_in_place(rig):
    rig.prompt(1, 6)
    rig.step(forks=[(1, 2)])
    rig.step(released=[1])
    assert not copies(rig.step(running=[Running(1, {2: 1})]))
    assert rig.num_used == 2


def test_a_full_last_block_is_shared_without_a_copy(rig):
    rig.prompt(1, 8)
    grant = rig.step(forks=[(1, 2)], running=[Running(1, {1: 1, 2: 1})])
    assert not copies(grant)
    assert rig.blocks(1)[:2] == rig.blocks(2)[:2]
    assert rig.blocks(1)[2] != rig.blocks(2)[2]


def test_four_samples_of_one_prompt_make_three_copies(rig):
    rig.prompt(1, 6)
    grant = rig.step(forks=[(1, 2), (1, 3), (2, 4)], running=[Running(1, {1: 1, 2: 1, 3: 1, 4: 1})])
    assert len(copies(grant)) == 3
    assert rig.num_used == 5
    rig.step(released=[1, 2, 3, 4])
    rig.assert_idle()


def test_each_owner_reads_what_it_would_have_written_alone(rig):
    rig.prompt(1, 6)
    for position in range(6):
        rig.worker.write(1, position, f"prompt {position}")
    rig.step(forks=[(1, 2)], running=[Running(1, {1: 1, 2: 1})])
    for sequence_id in (1, 2):
        rig.worker.write(sequence_id, 6, f"token of {sequence_id}")
    prompt = [f"prompt {position}" for position in range(6)]
    assert rig.worker.read(1, 7) == [*prompt, "token of 1"]
    assert rig.worker.read(2, 7) == [*prompt, "token of 2"]


def test_a_copy_reads_before_another_move_writes_its_source(rig):
    """Both owners write in one step, and the block that the second one leaves is taken by a third sequence."""
    rig.prompt(1, 6)
    rig.worker.write(1, 4, "shared")
    rig.prompt(3, 20)
    grant = rig.step(forks=[(1, 2)], running=[Running(1, {1: 1}), Running(3, {3: 1}), Running(2, {2: 1})])
    assert grant.preempted_group_ids == [2]
    assert rig.worker.read(1, 5)[4] == "shared"


def test_a_group_that_lacks_the_block_for_a_copy_gives_way(rig):
    rig.prompt(1, 6)
    rig.prompt(3, 24)
    grant = rig.step(forks=[(1, 2)], running=[Running(3, {3: 0}), Running(1, {1: 1, 2: 1})])
    assert grant.preempted_group_ids == [1]
    assert not copies(grant)
    assert rig.num_used == 6


def test_a_child_can_end_in_the_step_in_which_it_began(rig):
    rig.prompt(1, 6)
    grant = rig.step(forks=[(1, 2)], released=[2], running=[Running(1, {1: 1})])
    assert not copies(grant)
    assert list(grant.changes.dropped) == [2]


def test_a_parent_can_end_in_the_step_in_which_it_was_forked(rig):
    """A beam that is not among the best ends; its children go on from it."""
    rig.prompt(1, 6)
    grant = rig.step(forks=[(1, 2), (1, 3)], released=[1], running=[Running(1, {2: 1, 3: 1})])
    assert len(copies(grant)) == 1
    rig.step(released=[2, 3])
    rig.assert_idle()


def test_a_group_of_several_prompts_shares_nothing(rig):
    rig.step(entering=[Entering(1, {11: 6, 12: 6})])
    assert not set(rig.blocks(11)) & set(rig.blocks(12))
