"""A group that is swapped out comes back as it was (paper §4.5)."""

from doubles.memory_rig import RECOMPUTE, SWAP, Entering, MemoryRig, Running, chain, copies
from doubles.worker_memory import pairs


def fill(rig: MemoryRig, sequence_id: int, num_tokens: int) -> list[str]:
    """A computed prompt; returns what was written."""
    rig.prompt(sequence_id, num_tokens)
    values = [f"{sequence_id}:{position}" for position in range(num_tokens)]
    for position, value in enumerate(values):
        rig.worker.write(sequence_id, position, value)
    return values


def push_out(rig: MemoryRig, sequence_ids: list[int], *, by: int = 1, slots: int = 24):
    """Group 2 gives way to a group that needs more and more."""
    running = [Running(by, {by: slots}), Running(2, dict.fromkeys(sequence_ids, 0), SWAP)]
    return rig.step(running=running)


def test_a_swapped_sequence_comes_back_with_its_content(rig):
    rig.prompt(1, 4)
    values = fill(rig, 2, 10)
    grant = push_out(rig, [2])
    assert grant.preempted_modes == [SWAP]
    assert list(grant.changes.dropped) == [2]
    assert len(grant.changes.swap_outs) == 6
    assert grant.usage.num_used_host_blocks == 3
    assert rig.space.blocks_of(2) is None
    assert len(rig.space.host_blocks_of(2)) == 3
    grant = rig.step(released=[1], entering=[Entering(2, {2: 11})])
    assert grant.num_present_tokens == [10]
    assert grant.num_new_slots == [1]
    assert grant.usage.num_used_host_blocks == 0
    assert rig.worker.read(2, 10) == values


def test_a_swapped_sequence_may_come_back_with_nothing_to_compute(rig):
    """As a beam does whose tokens are all computed, and that waits for the others of its group."""
    rig.prompt(1, 4)
    values = fill(rig, 2, 10)
    push_out(rig, [2])
    grant = rig.step(released=[1], entering=[Entering(2, {2: 10})])
    assert (grant.num_present_tokens, grant.num_new_slots) == ([10], [0])
    assert rig.worker.read(2, 10) == values


def test_a_group_is_swapped_with_shared_blocks_once_and_equal_counts(rig):
    rig.prompt(1, 4)
    values = fill(rig, 2, 10)
    rig.step(forks=[(2, 3), (2, 4)])
    grant = push_out(rig, [2, 3, 4])
    assert grant.preempted_modes == [SWAP]
    assert len(grant.changes.swap_outs) == 6
    assert rig.space.host_blocks_of(2) == rig.space.host_blocks_of(3) == rig.space.host_blocks_of(4)
    assert grant.usage.num_used_host_blocks == 3
    grant = rig.step(released=[1], entering=[Entering(2, {2: 11, 3: 11, 4: 11})])
    assert len(grant.changes.swap_ins) == 6
    assert len(copies(grant)) == 2  # all three write behind the shared partial block at once
    assert grant.usage.num_used_device_blocks == 5
    for sequence_id in (2, 3, 4):
        assert rig.worker.read(sequence_id, 10) == values


def test_a_full_host_pool_means_recomputation():
    rig = MemoryRig(num_host_blocks=2)
    rig.prompt(1, 4)
    fill(rig, 2, 10)
    grant = push_out(rig, [2])
    assert grant.preempted_modes == [RECOMPUTE]
    assert grant.usage.num_used_host_blocks == 0
    assert not grant.changes.swap_outs


def test_coming_back_counts_the_next_tokens_block(rig):
    rig.prompt(1, 4)
    fill(rig, 2, 12)
    rig.prompt(3, 4)
    push_out(rig, [2], slots=16)
    grant = rig.step(released=[3], running=[Running(1, {1: 0})], entering=[Entering(2, {2: 13})])
    assert grant.refusal == "group 2 needs 4 blocks; 3 are free, 0 of them promised, watermark 0"
    assert rig.space.host_blocks_of(2) is not None


def test_a_swapped_sequence_can_end_where_it_is(rig):
    rig.prompt(1, 4)
    fill(rig, 2, 10)
    push_out(rig, [2])
    grant = rig.step(released=[2])
    assert not grant.changes.dropped  # the worker forgot the table when it was swapped out
    assert grant.usage.num_used_host_blocks == 0
    rig.step(released=[1])
    rig.assert_idle()


def test_a_swapped_sequence_can_be_forked(rig):
    rig.prompt(1, 4)
    fill(rig, 2, 10)
    push_out(rig, [2])
    grant = rig.step(forks=[(2, 3)])
    assert not grant.changes.forks
    grant = rig.step(released=[1], entering=[Entering(2, {2: 11, 3: 11})])
    assert len(copies(grant)) == 1
    assert rig.blocks(2)[:2] == rig.blocks(3)[:2]


def test_what_the_device_still_caches_is_not_moved_back(rig):
    rig.prompt(1, 4)
    hashes = chain("a", "b")
    fill(rig, 2, 10)
    rig.step(sealed=[(2, 0, hashes[0]), (2, 1, hashes[1])])
    rig.step(running=[Running(1, {1: 17}), Running(2, {2: 0}, SWAP)])
    assert rig.space.blocks_of(2) is None
    assert rig.num_cached == 2
    grant = rig.step(released=[1], entering=[Entering(2, {2: 11})])
    assert len(pairs(grant.changes.swap_ins)) == 1
    assert rig.worker.read(2, 10) == [f"2:{position}" for position in range(10)]


def test_a_prefix_that_was_evicted_meanwhile_is_findable_again_after_the_swap_in(rig):
    rig.prompt(1, 4)
    hashes = chain("a", "b")
    fill(rig, 2, 10)
    rig.step(sealed=[(2, 0, hashes[0]), (2, 1, hashes[1])])
    push_out(rig, [2], slots=28)
    assert rig.num_cached == 0
    grant = rig.step(released=[1], entering=[Entering(2, {2: 11})])
    assert len(pairs(grant.changes.swap_ins)) == 3
    grant = rig.step(entering=[Entering(3, {3: 9}, {3: hashes})])
    assert grant.num_present_tokens == [8]
    assert rig.blocks(3)[:2] == rig.blocks(2)[:2]


def test_a_block_that_was_sealed_just_before_it_was_swapped_out_keeps_its_hash(rig):
    """The step that filled it was still computing when its group gave way, so the seal comes a step later."""
    rig.prompt(1, 4)
    fill(rig, 2, 10)
    push_out(rig, [2], slots=28)
    hashes = chain("a", "b")
    rig.step(sealed=[(2, 0, hashes[0]), (2, 1, hashes[1])])
    rig.step(released=[1], entering=[Entering(2, {2: 11})])
    grant = rig.step(entering=[Entering(3, {3: 9}, {3: hashes})])
    assert grant.num_present_tokens == [8]


def test_a_shared_prefix_stays_with_those_that_run(rig):
    hashes = chain("a", "b")
    rig.prompt(1, 9, hashes)
    rig.step(entering=[Entering(2, {2: 10}, {2: hashes})])
    shared = rig.blocks(1)[:2]
    grant = push_out(rig, [2], slots=23)
    assert grant.preempted_modes == [SWAP]
    assert rig.blocks(1)[:2] == shared
    assert all(rig.space.count_of(block_id) == 1 for block_id in shared)


def test_host_blocks_are_taken_in_runs(rig):
    rig.prompt(1, 4)
    fill(rig, 2, 16)
    grant = push_out(rig, [2])
    assert [host for _, host in pairs(grant.changes.swap_outs)] == [0, 1, 2, 3]
