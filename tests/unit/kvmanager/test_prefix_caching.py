"""A published block is found again by its hash until its memory is needed."""

import pytest

from doubles.memory_rig import Entering, MemoryRig, Running, chain

ABC = chain("a", "b", "c")


def ask(rig: MemoryRig, sequence_id: int, num_tokens: int, hashes, **wants) -> int:
    """Lets a prompt enter and says how many of its tokens were present."""
    group = Entering(sequence_id, {sequence_id: num_tokens}, {sequence_id: hashes})
    grant = rig.step(entering=[group], **wants)
    assert grant.admitted_group_ids == [sequence_id], grant.refusal
    return grant.num_present_tokens[0]


def test_a_prompt_finds_what_an_earlier_one_computed(rig):
    rig.prompt(1, 13, ABC)
    assert ask(rig, 2, 13, ABC) == 12
    assert rig.blocks(2)[:3] == rig.blocks(1)[:3]
    assert rig.num_used == 5


def test_a_hit_outlives_the_sequence_that_computed_it(rig):
    rig.prompt(1, 13, ABC)
    blocks = rig.blocks(1)
    rig.step(released=[1])
    assert rig.num_cached == 3
    assert ask(rig, 2, 14, ABC) == 12
    assert rig.blocks(2)[:3] == blocks[:3]


def test_a_fully_cached_prompt_still_computes_its_last_block_and_writes_no_shared_one(rig):
    rig.prompt(1, 12, ABC)
    assert ask(rig, 2, 12, ABC) == 8
    assert rig.blocks(2)[:2] == rig.blocks(1)[:2]
    assert rig.blocks(2)[2] != rig.blocks(1)[2]
    assert ask(rig, 3, 4, ABC[:1]) == 0


def test_a_hash_is_published_only_when_its_block_is_sealed(rig):
    rig.step(entering=[Entering(1, {1: 5}, {1: ABC[:1]}), Entering(2, {2: 5}, {2: ABC[:1]})])
    assert rig.blocks(1)[0] != rig.blocks(2)[0]
    rig.step(released=[1])
    assert rig.num_cached == 0


def test_two_identical_prompts_of_one_step_become_one_copy_when_they_are_sealed(rig):
    rig.step(entering=[Entering(1, {1: 5}), Entering(2, {2: 5})])
    first, second = rig.blocks(1), rig.blocks(2)
    grant = rig.step(sealed=[(1, 0, ABC[0]), (2, 0, ABC[0])])
    assert rig.blocks(2) == [first[0], second[1]]
    assert list(grant.changes.replaced_sequence_ids) == [2]
    assert list(grant.changes.replaced_block_ids) == [first[0]]
    assert rig.num_used == 3
    rig.step(released=[1])
    assert rig.blocks(2) == [first[0], second[1]]
    rig.step(released=[2])
    rig.assert_idle()


def test_a_duplicate_that_is_sealed_and_released_in_one_step_leaves_no_change_behind(rig):
    rig.step(entering=[Entering(1, {1: 5}), Entering(2, {2: 5})])
    rig.step(sealed=[(1, 0, ABC[0])])
    grant = rig.step(sealed=[(2, 0, ABC[0])], released=[2])
    assert not grant.changes.replaced_sequence_ids


def test_the_child_of_a_sequence_whose_block_was_replaced_in_the_same_step_follows(rig):
    rig.step(entering=[Entering(1, {1: 5}), Entering(2, {2: 5})])
    grant = rig.step(sealed=[(1, 0, ABC[0]), (2, 0, ABC[0])], forks=[(2, 3)])
    assert list(grant.changes.replaced_sequence_ids) == [2, 3]
    assert rig.worker.tables[3] == rig.blocks(3) == rig.blocks(2)


def test_a_block_that_is_taken_for_other_tokens_loses_its_hash():
    rig = MemoryRig(num_device_blocks=3)
    x, y = chain("x", "x2"), chain("y", "y2")
    rig.prompt(1, 8, x)
    rig.step(released=[1])
    rig.prompt(2, 12, y)
    rig.step(released=[2])
    assert ask(rig, 3, 9, x) == 0


def test_a_chain_is_evicted_from_its_tail():
    rig = MemoryRig(num_device_blocks=3)
    rig.prompt(1, 12, ABC)
    rig.step(released=[1])
    rig.prompt(2, 1)
    rig.step(released=[2])
    assert [hash_ in {rig.space.hash_of(block) for block in range(3)} for hash_ in ABC] == [True, True, False]
    assert ask(rig, 3, 12, ABC) == 8


def test_without_its_head_a_chain_is_no_hit_at_all(rig):
    rig.prompt(1, 9, ABC[:2])
    assert ask(rig, 2, 9, [chain("other")[0], ABC[1]]) == 0


def test_uncached_blocks_are_taken_before_cached_ones(rig):
    rig.prompt(1, 6, ABC[:1])
    rig.prompt(2, 2)
    rig.step(released=[1, 2])
    rig.prompt(3, 28)
    assert rig.num_cached == 1
    rig.decode(3)
    assert rig.num_cached == 0


def test_the_least_recently_used_chain_is_evicted_first():
    rig = MemoryRig(num_device_blocks=5)
    old, new = chain("old", "old2"), chain("new", "new2")
    for sequence_id, hashes in ((1, old), (2, new)):
        rig.prompt(sequence_id, 8, hashes)
        rig.step(released=[sequence_id])
    assert ask(rig, 3, 8, old) == 4  # used again, so now the younger of the two
    rig.step(released=[3])
    rig.prompt(4, 16)
    rig.step(released=[4])
    assert ask(rig, 5, 8, new) == 0
    rig.step(released=[5])
    assert ask(rig, 6, 8, old) == 4


def test_questions_leave_the_eviction_order_alone(rig):
    rig.prompt(1, 12, ABC)
    rig.step(released=[1])
    before = rig.space.snapshot()
    for block_id in range(8):
        rig.space.count_of(block_id)
        rig.space.hash_of(block_id)
    rig.space.free_blocks()
    rig.space.check()
    assert rig.space.usage.num_cached_device_blocks == 3
    assert rig.space.snapshot() == before


def test_cached_free_blocks_that_are_hit_count_as_taken():
    rig = MemoryRig(num_device_blocks=4)
    rig.prompt(1, 12, ABC)
    rig.step(released=[1])
    group = Entering(2, {2: 20}, {2: ABC})
    assert rig.step(entering=[group]).refusal == "group 2 needs 5 blocks; 4 are free, 0 of them promised, watermark 0"
    assert ask(rig, 2, 16, ABC) == 12


def test_hits_of_a_group_are_not_evicted_by_its_other_sequences():
    rig = MemoryRig(num_device_blocks=6)
    rig.prompt(1, 12, ABC)
    rig.step(released=[1])
    grant = rig.step(entering=[Entering(2, {21: 8, 22: 16}, {22: ABC})])
    assert grant.num_present_tokens == [0, 12]


def test_a_shared_prefix_counts_once_for_a_group(rig):
    rig.prompt(1, 12, ABC)
    rig.step(released=[1])
    grant = rig.step(entering=[Entering(2, dict.fromkeys(range(5), 13), dict.fromkeys(range(5), ABC))])
    assert grant.num_present_tokens == [12] * 5
    assert rig.num_used == 8


def test_a_recomputed_sequence_finds_its_own_blocks(rig):
    rig.prompt(1, 4)
    rig.prompt(2, 13, ABC)
    grant = rig.step(running=[Running(1, {1: 16}), Running(2, {2: 1})])
    assert grant.preempted_group_ids == [2]
    assert ask(rig, 2, 14, ABC, released=[1]) == 12


@pytest.mark.parametrize("num_tokens", [3, 4, 5])
def test_generated_blocks_are_cached_too(rig, num_tokens):
    rig.prompt(1, num_tokens)
    for _ in range(5):
        rig.decode(1)
    hashes = chain(*range((num_tokens + 5) // 4))
    rig.step(sealed=[(1, index, hash_) for index, hash_ in enumerate(hashes)])
    rig.step(released=[1])
    assert ask(rig, 2, 12, hashes) == 4 * len(hashes)
