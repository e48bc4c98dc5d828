"""Pins, resets and questions between the steps of prompts that share prefixes, in any order."""

from hashlib import sha256

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvmanager.adapters.state_codec import StateCodec
from kvmanager.core.commands import Command, PinPrefix, ResetPrefixCache, UnpinPrefix
from kvmanager.core.inspection import BlockQuery, Tier, blocks_page, draw_map, map_source, sequence_views
from kvmanager.core.plan import (
    EnteringGroups,
    Plan,
    PoolShape,
    Preemption,
    PrefixHash,
    RunningGroups,
    SealedBlocks,
)
from kvmanager.core.pool_state import Opening, PoolState
from kvmanager.errors import BrokenPromise

BLOCK_SIZE, NUM_BLOCKS = 2, 10
CONTENTS = st.lists(st.integers(0, 1), min_size=1, max_size=4)


def chain(contents: list[int]) -> list[PrefixHash]:
    return [PrefixHash(sha256(bytes(contents[: end + 1])).digest()) for end in range(len(contents))]


class PinMachine(RuleBasedStateMachine):
    """Every entry is carried out twice: here, and by a replica that reads it from the journal's bytes."""

    @initialize()
    def open(self) -> None:
        self.codec = StateCodec()
        self.state, self.replica = PoolState(), PoolState()
        opening = Opening(1, PoolShape(BLOCK_SIZE, NUM_BLOCKS, 4, 0))
        self.state.open(opening)
        self.replica.open(opening)
        self.next_id = 1
        self.running: dict[int, list[PrefixHash]] = {}
        self.pinned: set[PrefixHash] = set()

    def step(self, **wants: object):
        plan = Plan(self.state.last_step_id + 1, **wants)
        grant = self.state.apply(plan)
        assert self.replica.apply(plan) == grant
        if self.state.history[-1].trace.num_ended_pins:
            self.pinned = {pin.prefix_hash for pin in self.state.space.snapshot().pins}
        return grant

    def administer(self, command: Command) -> None:
        self.state.administer(command)
        self.replica.replay(self.codec.decode_entry(self.codec.encode_command(command)))

    @rule(contents=CONTENTS, extra=st.integers(1, BLOCK_SIZE))
    def prompt(self, contents: list[int], extra: int) -> None:
        self.next_id += 1
        hashes, num_tokens = chain(contents), len(contents) * BLOCK_SIZE + extra
        hashes_of_full = hashes[: num_tokens // BLOCK_SIZE]
        hits = 0
        cache = self.state.space.device.tier.cache
        while hits < len(hashes) and cache.block_of(hashes[hits]) is not None:
            hits += 1
        entering = EnteringGroups(100, [self.next_id], [1], [self.next_id], [num_tokens], [hashes_of_full])
        grant = self.step(entering=entering)
        if grant.admitted_group_ids:
            assert grant.num_present_tokens == [min(hits, (num_tokens - 1) // BLOCK_SIZE) * BLOCK_SIZE]
            self.running[self.next_id] = hashes
            indexes = list(range(len(hashes)))
            self.step(sealed=SealedBlocks([self.next_id] * len(hashes), indexes, hashes))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        sequence_id = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[sequence_id]
        self.step(released=[sequence_id])

    @precondition(lambda self: self.running)
    @rule()
    def decode(self) -> None:
        ids = sorted(self.running)
        columns = ([1] * len(ids), [Preemption.RECOMPUTE] * len(ids), ids, [1] * len(ids))
        grant = self.step(running=RunningGroups(ids, *columns))
        for group_id in grant.preempted_group_ids:
            del self.running[group_id]

    @rule(contents=CONTENTS)
    def pin(self, contents: list[int]) -> None:
        prefix_hash, before = chain(contents)[-1], self.state.snapshot()
        if self.state.space.device.tier.cache.block_of(prefix_hash) is None:
            with pytest.raises(BrokenPromise, match="not in the prefix cache"):
                self.state.administer(PinPrefix(prefix_hash))
            assert self.state.snapshot() == before
            return
        self.administer(PinPrefix(prefix_hash))
        self.pinned.add(prefix_hash)

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        prefix_hash = data.draw(st.sampled_from(sorted(self.pinned)))
        self.administer(UnpinPrefix(prefix_hash))
        self.pinned.remove(prefix_hash)

    @rule()
    def reset(self) -> None:
        if self.running:
            with pytest.raises(BrokenPromise, match="sequences hold blocks"):
                self.state.administer(ResetPrefixCache())
            return
        self.administer(ResetPrefixCache())
        self.pinned = set()
        assert len(self.state.space.free_blocks()) == NUM_BLOCKS
        assert self.state.space.usage.num_cached_device_blocks == 0

    @rule()
    def restart(self) -> None:
        snapshot = self.state.snapshot()
        assert self.codec.decode_snapshot(self.codec.encode_snapshot(snapshot)) == snapshot
        history = self.state.history
        self.state = PoolState.restore(snapshot)
        self.state.history.extend(history)

    @invariant()
    def a_pinned_chain_is_cached_whole(self) -> None:
        for prefix_hash in getattr(self, "pinned", ()):
            assert self.state.space.device.tier.cache.block_of(prefix_hash) is not None

    @invariant()
    def nothing_contradicts_and_the_replica_is_equal(self) -> None:
        if not hasattr(self, "state"):
            return
        assert self.state.space.check() == []
        assert self.replica.snapshot() == self.state.snapshot()
        used = {block for table in self.state.space.snapshot().device_tables for block in table.blocks}
        assert self.state.space.usage.num_used_device_blocks == len(used)

    @invariant()
    def questions_change_nothing(self) -> None:
        if not hasattr(self, "state"):
            return
        space, before = self.state.space, self.state.snapshot()
        for tier in Tier:
            blocks_page(space, BlockQuery(tier))
            list(draw_map(map_source(space, tier, 3)))
        sequence_views(space)
        assert self.state.snapshot() == before


TestPins = PinMachine.TestCase
