"""Entries and snapshots come back as they were written, and what is damaged is named."""

import pytest

from doubles.managers import OPENING, decode, enter
from doubles.memory_journal import MemoryJournalStore, MemoryStore
from doubles.memory_rig import SWAP, Entering, MemoryRig, Running, chain
from kvmanager.adapters.protobuf import opening_of, plan_of
from kvmanager.adapters.state_codec import StateCodec, plan_entry
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import Grant
from kvmanager.core.pool_state import PoolState
from kvmanager.errors import JournalCorrupt, MalformedPlan
from kvmanager.replica import Replica
from kvmanager.v1 import kvmanager_pb2 as pb

CODEC = StateCodec()


def busy_space() -> BlockSpace:
    """Something of everything: shared, cached, promised and swapped blocks."""
    rig = MemoryRig(num_device_blocks=12)
    rig.prompt(1, 9, chain("a", "b"))
    rig.step(released=[1])
    rig.step(entering=[Entering(2, {2: 9}, {2: chain("a", "b")}), Entering(3, {3: 10})])
    rig.step(forks=[(3, 4)], running=[Running(2, {2: 1}), Running(3, {3: 1, 4: 1})])
    rig.step(running=[Running(2, {2: 30}), Running(3, {3: 1, 4: 1}, SWAP)])
    rig.step(entering=[Entering(5, {5: 2})], budget=1)
    assert rig.space.usage.num_used_host_blocks == 4
    return rig.space


def test_a_space_comes_back_equal_in_every_field():
    snapshot = busy_space().snapshot()
    assert BlockSpace.restore(snapshot).snapshot() == snapshot


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_a_state_comes_back_equal_in_every_field(num_steps):
    state = PoolState()
    state.open(OPENING)
    for step_id in range(1, num_steps + 1):
        state.apply(plan_of(enter(1) if step_id == 1 else decode(step_id)))
    snapshot = state.snapshot()
    assert CODEC.decode_snapshot(CODEC.encode_snapshot(snapshot)) == snapshot


def test_a_state_that_was_never_opened_has_a_snapshot_too():
    snapshot = PoolState().snapshot()
    assert CODEC.decode_snapshot(CODEC.encode_snapshot(snapshot)) == snapshot


def test_entries_come_back_as_they_were():
    assert CODEC.decode_entry(CODEC.encode_opening(OPENING)) == OPENING
    assert CODEC.decode_entry(plan_entry(decode(5), Grant(5))) == plan_of(decode(5))


@pytest.mark.parametrize("content", [b"", b"?", b"P\xff", b"O", b"Oshort"])
def test_an_entry_that_cannot_be_read_is_corrupt(content):
    with pytest.raises(JournalCorrupt, match="an entry"):
        CODEC.decode_entry(content)


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: c[: len(c) // 2], lambda c: b"", lambda c: b"x" * 99])
def test_a_snapshot_that_cannot_be_read_is_corrupt(damage):
    state = PoolState()
    state.open(OPENING)
    with pytest.raises(JournalCorrupt, match="a snapshot"):
        CODEC.decode_snapshot(damage(CODEC.encode_snapshot(state.snapshot())))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({1: CODEC.encode_opening(OPENING), 3: b"P"}, "entry 3 follows entry 1"),
        ({2: CODEC.encode_opening(OPENING)}, "ends at 2, but has no entry 1"),
        ({1: plan_entry(decode(1), Grant(1))}, "entry 1 cannot be replayed: the pool has not been opened"),
    ],
)
async def test_a_journal_that_cannot_be_replayed_is_corrupt(entries, words):
    store = MemoryStore()
    pool = store.pool("w")
    pool.entries, pool.head = entries, max(entries)
    journal = MemoryJournalStore(store, instance="a", lease_s=60).journal("w")
    with pytest.raises(JournalCorrupt, match=words):
        await Replica(journal, CODEC).catch_up()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.OpenPool(pool_id="w", num_device_blocks=8), "open.block_size: 0 must be at least 1"),
        (pb.OpenPool(pool_id="w", block_size=4), "open.num_device_blocks: 0 must be at least 1"),
        (pb.OpenPool(block_size=4, num_device_blocks=8), "open.pool_id: must not be empty"),
    ],
)
def test_an_opening_without_a_pool_is_refused(message, words):
    with pytest.raises(MalformedPlan, match=words):
        opening_of(message, 0.01)


def test_the_watermark_is_a_share_of_the_device_blocks():
    message = pb.OpenPool(pool_id="w", epoch=3, block_size=16, num_device_blocks=1000, num_host_blocks=7)
    assert opening_of(message, 0.01).shape.watermark_blocks == 10


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.Plan(running=pb.RunningGroups(preemptions=[0])), "running.preemptions: 0 is neither"),
        (pb.Plan(sealed=pb.SealedBlocks(hashes=b"x" * 33)), "sealed.hashes: 33 bytes are not a multiple of 32"),
        (pb.Plan(entering=pb.EnteringGroups(prefix_hashes=[b"x"])), "entering.prefix_hashes: 1 bytes"),
    ],
)
def test_a_plan_that_the_core_cannot_express_is_refused(message, words):
    with pytest.raises(MalformedPlan, match=words):
        plan_of(message)
