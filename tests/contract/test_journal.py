"""What every journal keeps to: Redis or Valkey, and the one in memory that other tests use."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from doubles.memory_journal import MemoryJournalStore, MemoryStore
from doubles.valkey import ValkeyServer
from kvmanager.adapters.redis_journal import RedisJournalStore
from kvmanager.errors import JournalAhead, JournalBehind, LeaseLost, PoolOwnedElsewhere
from kvmanager.ports import Entry, Journal, JournalStore, StoredSnapshot

LEASE_S = 0.8


@pytest.fixture(scope="module")
def valkey(tmp_path_factory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["memory", "redis"])
async def store_of(request) -> Callable[[str], JournalStore]:
    """A journal store for each instance that is named; all of them see the same journals."""
    stores: list[JournalStore] = []
    if request.param == "memory":
        shared = MemoryStore()
        yield lambda name: MemoryJournalStore(shared, instance=name, lease_s=LEASE_S)
        return

    def open_store(name: str) -> RedisJournalStore:
        stores.append(RedisJournalStore(valkey.url, instance=name, lease_s=LEASE_S))
        return stores[-1]

    valkey = request.getfixturevalue("valkey")
    valkey.client.flushall()
    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture
async def journal(store_of) -> Journal:
    """A journal whose lease is held by the instance ``a``."""
    journal = store_of("a").journal("pool")
    await journal.acquire()
    return journal


async def test_a_new_journal_is_empty(journal):
    assert await journal.head() == 0
    assert await journal.entries(0, 10) == []
    assert await journal.snapshot() is None


async def test_entries_come_back_in_order_and_byte_for_byte(journal):
    contents = [bytes([n, 0, 255, 10, 13]) * n for n in range(1, 6)]
    for position, content in enumerate(contents, 1):
        await journal.append(position, content)
    assert await journal.head() == 5
    assert await journal.entries(0, 10) == [Entry(n, content) for n, content in enumerate(contents, 1)]
    assert await journal.entries(2, 2) == [Entry(3, contents[2]), Entry(4, contents[3])]


async def test_writing_an_entry_twice_is_one_write(journal):
    await journal.append(1, b"one")
    await journal.append(1, b"one")
    assert await journal.entries(0, 10) == [Entry(1, b"one")]


async def test_another_entry_at_the_same_position_is_refused(journal):
    await journal.append(1, b"one")
    with pytest.raises(JournalAhead):
        await journal.append(1, b"uno")
    assert await journal.entries(0, 10) == [Entry(1, b"one")]


async def test_an_entry_before_the_head_is_refused(journal):
    for position in (1, 2, 3):
        await journal.append(position, b"x")
    with pytest.raises(JournalAhead):
        await journal.append(1, b"x")


async def test_a_gap_is_refused(journal):
    await journal.append(1, b"one")
    with pytest.raises(JournalBehind):
        await journal.append(3, b"three")
    assert await journal.head() == 1


async def test_a_snapshot_trims_the_entries_before_the_last_one(journal):
    for position in range(1, 7):
        await journal.append(position, b"%d" % position)
    await journal.save_snapshot(StoredSnapshot(4, b"state after four"))
    assert await journal.snapshot() == StoredSnapshot(4, b"state after four")
    assert await journal.snapshot_before() is None
    assert len(await journal.entries(0, 10)) == 6
    await journal.save_snapshot(StoredSnapshot(6, b"state after six"))
    assert await journal.snapshot() == StoredSnapshot(6, b"state after six")
    assert await journal.snapshot_before() == StoredSnapshot(4, b"state after four")
    assert await journal.entries(0, 10) == [Entry(5, b"5"), Entry(6, b"6")]
    assert await journal.head() == 6


async def test_a_snapshot_moves_the_head_of_a_journal_that_lost_entries(journal):
    await journal.save_snapshot(StoredSnapshot(70, b"memory"))
    assert await journal.head() == 70
    await journal.append(71, b"next")
    assert await journal.entries(70, 10) == [Entry(71, b"next")]


async def test_only_one_instance_holds_the_lease(store_of, journal):
    other = store_of("b").journal("pool")
    with pytest.raises(PoolOwnedElsewhere):
        await other.acquire()
    with pytest.raises((PoolOwnedElsewhere, LeaseLost)):
        await other.append(1, b"intruder")
    assert await journal.head() == 0


async def test_an_instance_that_starts_again_takes_its_lease_back_at_once(store_of, journal):
    again = store_of("a").journal("pool")
    await again.acquire()
    await again.append(1, b"after the restart")
    with pytest.raises(PoolOwnedElsewhere):
        await journal.append(1, b"from the grave")
    assert await again.entries(0, 10) == [Entry(1, b"after the restart")]


async def test_a_name_that_another_begins_with_is_another_instance(store_of, journal):
    with pytest.raises(PoolOwnedElsewhere):
        await store_of("").journal("pool").acquire()


async def test_a_lease_that_is_not_renewed_ends(store_of, journal):
    await asyncio.sleep(LEASE_S + 0.1)
    with pytest.raises(LeaseLost):
        await journal.append(1, b"too late")
    with pytest.raises(LeaseLost):
        await journal.renew()
    other = store_of("b").journal("pool")
    await other.acquire()
    with pytest.raises(PoolOwnedElsewhere):
        await journal.append(1, b"too late")
    with pytest.raises(PoolOwnedElsewhere):
        await journal.save_snapshot(StoredSnapshot(9, b"too late"))
    with pytest.raises(PoolOwnedElsewhere):
        await journal.renew()
    assert await other.snapshot() is None


async def test_a_renewed_lease_lasts(store_of, journal):
    for _ in range(4):
        await asyncio.sleep(LEASE_S / 2)
        await journal.renew()
    await journal.append(1, b"still here")


async def test_a_lease_that_was_given_up_need_not_be_waited_for(store_of, journal):
    await journal.release()
    other = store_of("b").journal("pool")
    await other.acquire()
    await journal.release()  # gives up nothing that is not held
    await other.append(1, b"new owner")


async def test_pools_have_journals_of_their_own(store_of, journal):
    store = store_of("a")
    second = store.journal("second")
    await second.acquire()
    await second.append(1, b"second")
    assert await journal.head() == 0
    assert await store.pool_ids() == ["pool", "second"]
    await store.ping()
