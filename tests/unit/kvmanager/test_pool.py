"""A pool answers only what its journal has, exactly once, and goes on after every kind of loss."""

import asyncio
from dataclasses import replace

import pytest

from doubles.managers import OPENING, Manager, decode, enter
from doubles.memory_journal import MemoryStore
from kvmanager.errors import BrokenPromise, JournalUnavailable, PoolNotOpen, PoolOwnedElsewhere, StaleStep
from kvmanager.pool import JournalPolicy


class Clock:
    """Seconds that pass when a test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
async def manager(store) -> Manager:
    """One sequence of 6 tokens runs; two entries are journalled."""
    manager = Manager(store)
    opened = await manager.open()
    assert not opened.restored
    assert opened.last_step_id == 0
    await manager.step(enter(1))
    return manager


# --- Exactly once ---


async def test_a_repeated_step_gets_the_stored_answer_and_is_journalled_once(store, manager):
    first = await manager.step(decode(2))
    before = manager.state.snapshot()
    assert await manager.step(decode(2)) is first
    assert manager.state.snapshot() == before
    assert store.pools["w"].head == 3


async def test_a_step_that_is_neither_the_next_nor_the_last_is_refused_and_not_journalled(store, manager):
    await manager.step(decode(2))
    for step_id in (1, 4):
        with pytest.raises(StaleStep, match=f"step_id: {step_id} does not follow 2"):
            await manager.step(decode(step_id))
    assert store.pools["w"].head == 3


async def test_a_broken_promise_is_not_journalled_and_the_pool_goes_on(store, manager):
    with pytest.raises(BrokenPromise, match="sequence 9"):
        await manager.step(decode(2, sequence_id=9))
    assert store.pools["w"].head == 2
    await manager.step(decode(2))


async def test_plans_of_a_stream_that_another_one_replaced_are_refused(manager):
    session = manager.session
    await manager.open()
    manager.session = session
    with pytest.raises(PoolNotOpen, match="another stream"):
        await manager.step(decode(2))


async def test_opening_again_changes_nothing(manager):
    before = manager.state.snapshot()
    opened = await manager.open()
    assert opened.restored
    assert opened.last_step_id == 1
    assert manager.state.snapshot() == before


async def test_a_new_scheduler_begins_with_no_sequences_and_the_next_step(manager):
    opened = await manager.open(replace(OPENING, forget_sequences=True))
    assert opened.restored
    assert opened.last_step_id == 1
    assert manager.state.space.num_sequences == 0
    with pytest.raises(StaleStep):
        await manager.step(enter(1))
    await manager.step(enter(2))


async def test_a_new_epoch_forgets_every_block(manager):
    opened = await manager.open(replace(OPENING, epoch=8))
    assert not opened.restored
    assert opened.last_step_id == 0
    assert manager.state.space.usage.num_used_device_blocks == 0
    await manager.step(enter(1))


async def test_a_pool_cannot_change_its_size_within_an_epoch(store, manager):
    shape = replace(OPENING.shape, num_device_blocks=9)
    with pytest.raises(BrokenPromise, match=r"num_device_blocks=8.*not.*num_device_blocks=9"):
        await manager.open(replace(OPENING, shape=shape))
    assert store.pools["w"].head == 2


# --- Restart ---


async def test_a_restart_equals_the_last_answered_step_in_every_field(store, manager):
    last = [await manager.step(decode(step_id)) for step_id in range(2, 9)][-1]
    again = Manager(store)
    opened = await again.open()
    assert opened.restored
    assert opened.last_step_id == 8
    assert again.state.snapshot() == manager.state.snapshot()
    assert await again.step(decode(8)) == last
    await again.step(decode(9))


async def test_snapshots_are_written_in_time_and_trim_the_journal(store):
    manager = Manager(store, snapshot_interval=4)
    await manager.open()
    await manager.step(enter(1))
    pool = store.pools["w"]
    for step_id in range(2, 12):
        await manager.step(decode(step_id))
        while pool.head % 4 == 0 and (pool.snapshot is None or pool.snapshot.position < pool.head):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert list(pool.entries) == [9, 10, 11, 12]  # since the snapshot before, for those who ask how it was
    again = Manager(store)
    await again.open()
    assert again.state.snapshot() == manager.state.snapshot()
    assert await again.step(decode(11)) == manager.state.stored_answer(11)


def test_a_very_large_pool_is_written_down_less_often():
    policy = JournalPolicy(snapshot_interval=2000)
    assert policy.snapshot_interval_of(100_000) == 2000
    assert policy.snapshot_interval_of(1_000_000) == 20_000


async def test_the_journal_keeps_only_the_waiting_groups_that_changed_something(store, manager):
    grant = await manager.step(enter(2, 4, 2, 3, 4, 5))
    assert grant.admitted_group_ids == [2]
    assert len(store.pools["w"].entries[3]) < 200
    refused = await manager.step(enter(3, 1000, 6, 7, 8))
    assert refused.refusal.startswith("group 6 needs 250 blocks")
    again = Manager(store)
    await again.open()
    assert again.state.snapshot() == manager.state.snapshot()
    assert await again.step(enter(3, 1000, 6, 7, 8)) == refused


async def test_another_watermark_holds_from_the_restart_on_and_is_replayed(store, manager):
    await manager.open(replace(OPENING, shape=replace(OPENING.shape, watermark_blocks=5)))
    assert (await manager.step(enter(2, 8, 2))).refusal
    again = Manager(store)
    await again.open(replace(OPENING, shape=replace(OPENING.shape, watermark_blocks=0)))
    assert again.state.stored_answer(2).refusal
    assert (await again.step(enter(3, 8, 2))).admitted_group_ids == [2]


# --- The journal away, slow, or lost ---


async def test_without_the_journal_nothing_is_answered(store, manager):
    store.is_away = True
    with pytest.raises(JournalUnavailable):
        await manager.step(decode(2))


async def test_a_step_waits_for_a_journal_that_comes_back(store, manager):
    store.is_away = True
    step = asyncio.create_task(manager.step(decode(2)))
    await asyncio.sleep(0.05)
    assert not step.done()
    store.is_away = False
    assert (await step).step_id == 2


async def test_a_step_that_was_not_journalled_in_time_is_journalled_before_anything_else(store, manager):
    store.is_away = True
    with pytest.raises(JournalUnavailable):
        await manager.step(decode(2))
    with pytest.raises(JournalUnavailable):
        await manager.step(decode(2))
    store.is_away = False
    opened = await manager.open()
    assert opened.last_step_id == 2
    assert (await manager.step(decode(2))).step_id == 2
    assert store.pools["w"].head == 4  # opened, entered, decoded, opened again
    again = Manager(store)
    await again.open()
    assert again.state.snapshot() == manager.state.snapshot()


async def test_a_journal_that_came_back_empty_gets_a_snapshot_of_memory(store, manager):
    await manager.step(decode(2))
    store.pools.clear()
    grant = await manager.step(decode(3))
    await manager.step(decode(4))
    assert store.pools["w"].snapshot.position == 4
    assert list(store.pools["w"].entries) == [5]
    again = Manager(store)
    opened = await again.open()
    assert opened.restored
    assert again.state.snapshot() == manager.state.snapshot()
    assert grant.step_id == 3


async def test_a_journal_that_lost_its_last_entries_gets_a_snapshot_of_memory(store, manager):
    for step_id in range(2, 6):
        await manager.step(decode(step_id))
    pool = store.pools["w"]
    pool.head = 3
    pool.entries = {position: entry for position, entry in pool.entries.items() if position <= 3}
    await manager.step(decode(6))
    again = Manager(store)
    await again.open()
    assert again.state.snapshot() == manager.state.snapshot()


async def test_with_manager_and_journal_lost_the_pool_is_a_new_one(store, manager):
    store.pools.clear()
    again = Manager(store)
    opened = await again.open()
    assert not opened.restored
    assert opened.last_step_id == 0
    await again.step(enter(2))  # its caller goes on counting
    await again.step(decode(3))


async def test_a_cancelled_step_leaves_the_pool_usable(store, manager):
    store.is_away = True
    step = asyncio.create_task(manager.step(decode(2)))
    await asyncio.sleep(0.05)
    step.cancel()
    with pytest.raises(asyncio.CancelledError):
        await step
    store.is_away = False
    opened = await manager.open()
    assert opened.last_step_id == 2
    await manager.step(decode(3))


# --- Two managers ---


async def test_a_pool_that_another_instance_owns_cannot_be_opened(store, manager):
    with pytest.raises(PoolOwnedElsewhere):
        await Manager(store, "b").open()
    await manager.step(decode(2))


async def test_a_manager_whose_lease_ended_and_was_taken_answers_nothing_more(store, clock):
    first = Manager(store, "a")
    await first.open()
    await first.step(enter(1))
    clock.now_s += 61
    second = Manager(store, "b")
    assert (await second.open()).restored
    await second.step(decode(2))
    with pytest.raises(PoolOwnedElsewhere):
        await first.step(decode(2))
    with pytest.raises(PoolOwnedElsewhere):
        await first.step(decode(2))
    assert first.pools.owned() == {}
    with pytest.raises(PoolOwnedElsewhere):
        await first.open()
    await second.step(decode(3))


async def test_a_lease_that_ended_while_nobody_wanted_it_is_taken_again(store, manager, clock):
    clock.now_s += 61
    await manager.step(decode(2))
    assert store.pools["w"].head == 3


async def test_a_lease_that_is_renewed_is_kept_from_others(store, manager, clock):
    renewing = asyncio.create_task(manager.pools.renew_leases(0.001))
    for _ in range(3):
        clock.now_s += 40
        await asyncio.sleep(0.02)
    with pytest.raises(PoolOwnedElsewhere):
        await Manager(store, "b").open()
    renewing.cancel()


async def test_a_standby_follows_and_takes_over_from_where_the_owner_was(store, clock):
    owner, standby = Manager(store, "a", snapshot_interval=3), Manager(store, "b")
    await owner.open()
    following = asyncio.create_task(standby.pools.follow(0.01))
    await owner.step(enter(1))
    for step_id in range(2, 9):
        await owner.step(decode(step_id))
        await asyncio.sleep(0.01)
    while standby.pools.followed()["w"].position < owner.pool.replica.position:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert standby.pools.followed()["w"].state.snapshot() == owner.state.snapshot()
    with pytest.raises(PoolOwnedElsewhere):
        await standby.open()
    clock.now_s += 61  # the owner is dead and its lease ends
    opened = await standby.open()
    assert opened.restored
    assert opened.last_step_id == 8
    assert standby.pools.followed() == {}
    await standby.step(decode(9))
    following.cancel()


async def test_a_manager_that_ends_in_order_gives_its_lease_up(store, manager):
    await manager.pools.close()
    assert (await Manager(store, "b").open()).last_step_id == 1
