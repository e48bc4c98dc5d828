"""A pinned prefix stays; nothing else about the pool changes."""

import pytest

from doubles.memory_rig import Entering, MemoryRig, chain
from kvmanager.adapters.state_codec import StateCodec
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.commands import PinPrefix, ResetPrefixCache, UnpinPrefix
from kvmanager.core.plan import PoolShape, PrefixHash
from kvmanager.core.pool_state import Opening, PoolState
from kvmanager.errors import BrokenPromise

HEAD, TAIL = chain("a", "b")


@pytest.fixture
def cached(rig) -> MemoryRig:
    """Two blocks are cached, and nobody holds them."""
    rig.prompt(1, 8, [HEAD, TAIL])
    rig.step(released=[1])
    return rig


def evict_what_can_be(rig) -> None:
    """A prompt that takes every free block, and ends."""
    num_free = len(rig.space.free_blocks())
    rig.prompt(99, num_free * 4)
    rig.step(released=[99])


def test_a_pinned_chain_survives_a_prompt_that_takes_every_free_block(cached):
    cached.space.pin(TAIL, 0)
    evict_what_can_be(cached)
    assert cached.space.check() == []
    assert cached.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [8]


def test_without_a_pin_it_does_not(cached):
    evict_what_can_be(cached)
    assert cached.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [0]


def test_pinning_a_hash_pins_the_chain_before_it_and_nothing_after_it(cached):
    cached.space.pin(HEAD, 0)
    evict_what_can_be(cached)
    assert cached.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [4]


def test_a_pin_holds_no_sequence_and_counts_as_nothing_used(cached):
    cached.space.pin(TAIL, 0)
    assert cached.space.num_sequences == 0
    assert cached.num_used == cached.num_cached == 0
    assert len(cached.space.free_blocks()) == 6
    cached.prompt(2, 9, [HEAD, TAIL])
    assert cached.num_used == 3


def test_an_unpinned_chain_is_evicted_again_tail_before_head(cached):
    cached.space.pin(TAIL, 0)
    cached.space.unpin(TAIL)
    cached.assert_idle()
    cached.prompt(99, 7 * 4)
    cached.step(released=[99])
    assert cached.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [4]


def test_a_block_of_two_pins_stays_until_the_last_of_them_ends(cached):
    cached.space.pin(HEAD, 0)
    cached.space.pin(TAIL, 0)
    cached.space.unpin(HEAD)
    evict_what_can_be(cached)
    assert cached.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [8]
    cached.step(released=[2])
    cached.space.unpin(TAIL)
    cached.assert_idle()


def test_pinning_again_replaces_the_expiry_and_counts_the_block_once(cached):
    cached.space.pin(TAIL, 5)
    cached.space.pin(TAIL, 7)
    assert [pin.expires_at_ms for pin in cached.space.snapshot().pins] == [7]
    cached.space.unpin(TAIL)
    cached.assert_idle()


def test_what_is_not_cached_cannot_be_pinned(cached):
    before = cached.space.snapshot()
    with pytest.raises(BrokenPromise, match="not in the prefix cache"):
        cached.space.pin(PrefixHash(bytes(32)), 0)
    assert cached.space.snapshot() == before


def test_a_pin_is_taken_while_sequences_share_the_block_and_outlives_them(rig):
    rig.prompt(1, 8, [HEAD, TAIL])
    rig.space.pin(TAIL, 0)
    assert rig.space.check() == []
    assert rig.num_used == 2
    rig.step(released=[1])
    assert rig.num_used == 0
    evict_what_can_be(rig)
    assert rig.prompt(2, 9, [HEAD, TAIL]).num_present_tokens == [8]


def test_pins_give_way_to_a_prompt_that_could_never_enter_beside_them(cached):
    cached.space.pin(TAIL, 0)
    grant = cached.prompt(2, 8 * 4)
    assert grant.admitted_group_ids == [2]
    assert cached.space.last_trace.num_ended_pins == 1
    assert cached.space.last_trace.evicted_block_ids


def test_pins_do_not_give_way_while_something_runs(cached):
    cached.space.pin(TAIL, 0)
    cached.prompt(2, 4)
    grant = cached.step(entering=[Entering(3, {3: 8 * 4 - 4})])
    assert not grant.admitted_group_ids
    assert cached.space.snapshot().pins


def test_a_reset_forgets_hashes_and_pins_and_is_refused_while_there_are_sequences(cached):
    cached.space.pin(HEAD, 0)
    cached.prompt(2, 4)
    with pytest.raises(BrokenPromise, match="1 sequences hold blocks"):
        cached.space.reset_prefix_cache()
    cached.step(released=[2])
    cached.space.reset_prefix_cache()
    cached.assert_idle()
    assert cached.num_cached == 0
    assert cached.prompt(3, 9, [HEAD, TAIL]).num_present_tokens == [0]


def test_commands_are_written_down_and_replayed_to_the_same_state(cached):
    codec = StateCodec()
    commands = [PinPrefix(HEAD, 77), PinPrefix(TAIL), UnpinPrefix(HEAD)]
    state, again = PoolState(), PoolState()
    for replica in (state, again):
        replica.open(Opening(1, PoolShape(4, 8, 8, 0)))
        replica._space = BlockSpace.restore(cached.space.snapshot())
    for command in commands:
        state.administer(command)
        again.replay(codec.decode_entry(codec.encode_command(command)))
    assert again.snapshot() == state.snapshot()
    assert codec.decode_snapshot(codec.encode_snapshot(state.snapshot())) == state.snapshot()
    assert PoolState.restore(state.snapshot()).space.check() == []
    for replica in (state, again):
        replica.replay(codec.decode_entry(codec.encode_command(ResetPrefixCache())))
    assert again.snapshot() == state.snapshot()
    assert not state.snapshot().space.pins
