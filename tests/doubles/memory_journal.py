"""A journal store in memory, in a page. Instances share a ``MemoryStore`` as processes share a Redis."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from kvmanager.errors import JournalAhead, JournalBehind, JournalUnavailable, LeaseLost, PoolOwnedElsewhere
from kvmanager.ports import Entry, StoredSnapshot


@dataclass
class StoredPool:
    owner: tuple[str, int] | None = None
    owned_until_s: float = 0.0
    head: int = 0
    entries: dict[int, bytes] = field(default_factory=dict)
    snapshot: StoredSnapshot | None = None
    snapshot_before: StoredSnapshot | None = None


@dataclass
class MemoryStore:
    """What a Redis holds. While ``is_away`` nobody gets an answer."""

    pools: dict[str, StoredPool] = field(default_factory=dict)
    fence: itertools.count = field(default_factory=itertools.count)
    is_away: bool = False
    clock: Callable[[], float] = monotonic

    def pool(self, pool_id: str) -> StoredPool:
        if self.is_away:
            raise JournalUnavailable("the store is away")
        return self.pools.setdefault(pool_id, StoredPool())


class MemoryJournalStore:
    def __init__(self, store: MemoryStore, *, instance: str, lease_s: float) -> None:
        self._store = store
        self._instance = instance
        self._lease_s = lease_s

    def journal(self, pool_id: str) -> "MemoryJournal":
        return MemoryJournal(self._store, pool_id, self._instance, self._lease_s)

    async def pool_ids(self) -> Sequence[str]:
        await self.ping()
        return sorted(self._store.pools)

    async def ping(self) -> None:
        if self._store.is_away:
            raise JournalUnavailable("the store is away")

    async def close(self) -> None:
        pass


class MemoryJournal:
    def __init__(self, store: MemoryStore, pool_id: str, instance: str, lease_s: float) -> None:
        self._store = store
        self._pool_id = pool_id
        self._instance = instance
        self._lease_s = lease_s
        self._token: tuple[str, int] | None = None

    def _pool(self) -> StoredPool:
        pool = self._store.pool(self._pool_id)
        if self._store.clock() > pool.owned_until_s:
            pool.owner = None
        return pool

    def _held(self) -> StoredPool:
        pool = self._pool()
        if pool.owner is None:
            raise LeaseLost("UNOWNED")
        if pool.owner != self._token:
            raise PoolOwnedElsewhere(f"OWNED {pool.owner}")
        return pool

    async def acquire(self) -> None:
        pool = self._pool()
        if pool.owner is not None and pool.owner[0] != self._instance:
            raise PoolOwnedElsewhere(f"OWNED {pool.owner}")
        pool.owner = self._token = (self._instance, next(self._store.fence))
        pool.owned_until_s = self._store.clock() + self._lease_s

    async def renew(self) -> None:
        self._held().owned_until_s = self._store.clock() + self._lease_s

    async def release(self) -> None:
        try:
            self._held().owner = None
        except (LeaseLost, PoolOwnedElsewhere):
            return

    async def append(self, position: int, content: bytes) -> None:
        pool = self._held()
        if pool.head < position - 1:
            raise JournalBehind(f"BEHIND {pool.head}")
        if pool.head >= position:
            if pool.head == position and pool.entries.get(position) == content:
                return
            raise JournalAhead(f"AHEAD {pool.head}")
        pool.entries[position] = content
        pool.head = position

    async def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        pool = self._held()
        if pool.snapshot is not None and pool.snapshot.position != snapshot.position:
            before = pool.snapshot_before = pool.snapshot
            pool.entries = {position: entry for position, entry in pool.entries.items() if position > before.position}
        pool.snapshot = snapshot
        pool.head = max(pool.head, snapshot.position)

    async def head(self) -> int:
        return self._pool().head

    async def entries(self, after: int, limit: int) -> Sequence[Entry]:
        found = [Entry(position, entry) for position, entry in sorted(self._pool().entries.items()) if position > after]
        return found[:limit]

    async def snapshot(self) -> StoredSnapshot | None:
        return self._pool().snapshot

    async def snapshot_before(self) -> StoredSnapshot | None:
        return self._pool().snapshot_before
