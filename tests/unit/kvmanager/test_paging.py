"""Blocks are given when the earlier ones are full, and taken back from the end of the list."""

import pytest

from doubles.memory_rig import RECOMPUTE, Entering, MemoryRig, Running


@pytest.mark.parametrize(("num_tokens", "num_blocks"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_prompt_gets_the_blocks_that_its_tokens_fill(rig, num_tokens, num_blocks):
    grant = rig.prompt(1, num_tokens)
    assert grant.num_present_tokens == [0]
    assert grant.num_new_slots == [num_tokens]
    assert len(rig.blocks(1)) == rig.num_used == num_blocks
    rig.step(released=[1])
    rig.assert_idle()


@pytest.mark.parametrize("num_tokens", [3, 4, 5, 8, 9])
def test_every_write_of_a_decode_lands_in_an_allocated_block(rig, num_tokens):
    rig.prompt(1, num_tokens)
    for position in range(num_tokens, num_tokens + 9):
        grant = rig.decode(1)
        rig.worker.write(1, position, position)
        assert grant.changes.appended_num_blocks == ([1] if position % 4 == 0 else [])
    assert rig.worker.read(1, num_tokens + 9)[num_tokens:] == list(range(num_tokens, num_tokens + 9))


def test_a_block_size_of_one_gives_a_block_per_token():
    rig = MemoryRig(block_size=1)
    rig.prompt(1, 3)
    assert rig.decode(1).changes.appended_num_blocks == [1]
    assert rig.num_used == 4


def test_freed_blocks_are_used_again_in_the_order_of_their_table(rig):
    rig.prompt(1, 12)
    blocks = rig.blocks(1)
    rig.step(released=[1])
    rig.prompt(2, 12)
    assert rig.blocks(2) == blocks


def test_the_last_group_of_the_list_gives_way(rig):
    for sequence_id in (1, 2, 3):
        rig.prompt(sequence_id, 8)
    rig.prompt(4, 8)
    grant = rig.decode(1, 2, 3, 4)
    assert grant.preempted_group_ids == [4, 3]
    assert grant.preempted_modes == [RECOMPUTE, RECOMPUTE]
    assert list(grant.changes.dropped) == [4, 3]
    assert [len(rig.blocks(sequence_id)) for sequence_id in (1, 2)] == [3, 3]
    assert rig.num_used == 6


def test_the_asking_group_gives_way_itself_if_it_is_the_last(rig):
    rig.prompt(1, 28)
    rig.prompt(2, 4)
    grant = rig.step(running=[Running(1, {1: 0}), Running(2, {2: 1})])
    assert grant.preempted_group_ids == [2]
    assert rig.num_used == 7


def test_a_victim_has_got_nothing_in_the_same_step(rig):
    rig.prompt(1, 16)
    rig.prompt(2, 15)
    grant = rig.decode(1, 2)
    assert grant.preempted_group_ids == [2]
    assert list(grant.changes.appended_sequence_ids) == [1]


def test_a_group_is_granted_whole_or_not_at_all(rig):
    rig.step(entering=[Entering(1, {11: 12, 12: 16})])
    grant = rig.step(running=[Running(1, {11: 4, 12: 1})])
    assert grant.preempted_group_ids == [1]
    assert not grant.changes.appended_sequence_ids
    rig.assert_idle()


def test_nothing_enters_in_a_step_that_preempts(rig):
    rig.prompt(1, 16)
    rig.prompt(2, 16)
    grant = rig.decode(1, 2, entering=[Entering(3, {3: 1})])
    assert grant.preempted_group_ids == [2]
    assert grant.admitted_group_ids == []
    assert grant.refusal == "group 3 waits while 1 groups give way"


def test_groups_enter_in_order_and_nobody_overtakes(rig):
    grant = rig.step(entering=[Entering(1, {1: 20}), Entering(2, {2: 16}), Entering(3, {3: 1})])
    assert grant.admitted_group_ids == [1]
    assert grant.refusal == ""
    grant = rig.decode(1, entering=[Entering(2, {2: 16}), Entering(3, {3: 1})])
    assert grant.admitted_group_ids == []
    assert grant.refusal == "group 2 needs 4 blocks; 2 are free, 0 of them promised, watermark 0"


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers():
    rig = MemoryRig(num_device_blocks=50, block_size=16)
    grant = rig.step(entering=[Entering(1, {1: 1000}), Entering(2, {2: 5})])
    assert grant.refusal == "group 1 needs 63 blocks; 50 are free, 0 of them promised, watermark 0"
    assert rig.step(entering=[Entering(2, {2: 5})]).admitted_group_ids == [2]


def test_a_prompt_enters_in_chunks_and_is_promised_the_rest(rig):
    grant = rig.step(entering=[Entering(1, {1: 28}), Entering(2, {2: 8})], budget=6)
    assert grant.admitted_group_ids == [1]
    assert grant.num_new_slots == [6]
    assert rig.num_used == 2
    grant = rig.step(running=[Running(1, {1: 6})], entering=[Entering(2, {2: 8})], budget=4)
    assert grant.refusal == "group 2 needs 2 blocks; 5 are free, 4 of them promised, watermark 0"
    rig.step(running=[Running(1, {1: 16})])
    grant = rig.step(entering=[Entering(2, {2: 4})], budget=4)
    assert grant.admitted_group_ids == [2]


def test_a_promise_ends_with_its_sequence(rig):
    rig.step(entering=[Entering(1, {1: 32})], budget=1)
    assert rig.step(released=[1], entering=[Entering(2, {2: 32})], budget=1).admitted_group_ids == [2]
    assert rig.num_used == 1


def test_later_sequences_of_a_group_may_wait_for_budget_but_the_first_never(rig):
    grant = rig.step(entering=[Entering(1, {11: 5, 12: 5}), Entering(2, {2: 1})], budget=5)
    assert grant.admitted_sequence_ids == [11, 12]
    assert grant.num_new_slots == [5, 0]
    assert rig.blocks(12) == []
    assert rig.step(entering=[Entering(2, {2: 1})], budget=0).refusal == "group 2 waits for token budget"


def test_the_watermark_stays_free_for_those_that_run():
    rig = MemoryRig(watermark_blocks=2)
    rig.prompt(1, 32)
    rig.step(released=[1])
    rig.prompt(1, 4)
    grant = rig.decode(1, entering=[Entering(2, {2: 20})])
    assert grant.refusal == "group 2 needs 5 blocks; 6 are free, 0 of them promised, watermark 2"
    assert rig.step(entering=[Entering(2, {2: 16})]).admitted_group_ids == [2]


def test_a_group_that_skips_a_step_keeps_its_blocks(rig):
    rig.prompt(1, 6)
    rig.prompt(2, 6)
    grant = rig.step(running=[Running(1, {1: 1}), Running(2, {2: 0})])
    assert not grant.preempted_group_ids
    assert rig.space.num_slots_of(1) == 7
    assert rig.space.num_slots_of(2) == 6
