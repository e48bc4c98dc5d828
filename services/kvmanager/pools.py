"""The pools of this process: those that it owns and, as a standby, those that it follows."""

import asyncio
import logging

from kvmanager.core.pool_state import Opening
from kvmanager.errors import JournalCorrupt, JournalUnavailable
from kvmanager.pool import JournalPolicy, Pool, PoolOpened
from kvmanager.ports import Codec, Journal, JournalStore
from kvmanager.replica import Replica

_log = logging.getLogger(__name__)


class Pools:
    """Opens pools, keeps their leases and follows what others own."""

    def __init__(self, store: JournalStore, codec: Codec, policy: JournalPolicy) -> None:
        self._store = store
        self._codec = codec
        self._policy = policy
        self._owned: dict[str, Pool] = {}
        self._followed: dict[str, tuple[Journal, Replica]] = {}
        self._turn = asyncio.Lock()

    # --- Questions ---

    def owned(self) -> dict[str, Pool]:
        """Pools that this process answers for, by id."""
        return {pool_id: pool for pool_id, pool in self._owned.items() if not pool.is_lost}

    def followed(self) -> dict[str, Replica]:
        """Pools that another process owns and this one follows, by id."""
        return {pool_id: replica for pool_id, (_, replica) in self._followed.items()}

    # --- Commands ---

    async def open(self, pool_id: str, opening: Opening) -> tuple[Pool, int, PoolOpened]:
        """Opens a pool for a new caller: takes its lease and catches up with its journal if it is not owned yet.

        Returns the pool, the caller's session and what to tell it. Raises ``PoolOwnedElsewhere``,
        ``JournalUnavailable``, ``JournalCorrupt`` and ``BrokenPromise``.
        """
        async with self._turn:
            pool = self._owned.get(pool_id)
            if pool is None or pool.is_lost:
                pool = self._owned[pool_id] = await self._take_over(pool_id)
        session, opened = await pool.open(opening)
        return pool, session, opened

    async def renew_leases(self, every_s: float) -> None:
        """Keeps the leases of all owned pools, for ever."""
        while True:
            for pool in self.owned().values():
                await pool.renew_lease()
            await asyncio.sleep(every_s)

    async def follow(self, every_s: float) -> None:
        """Follows the pools that other processes own, for ever."""
        while True:
            try:
                async with self._turn:
                    await self._follow_once()
            except JournalUnavailable as error:
                _log.warning("cannot follow: %s", error)
            await asyncio.sleep(every_s)

    async def close(self) -> None:
        """Gives all leases up."""
        for pool in self._owned.values():
            try:
                await pool.close()
            except JournalUnavailable as error:
                _log.warning("lease not given up: %s", error)

    async def _take_over(self, pool_id: str) -> Pool:
        journal, replica = self._followed.get(pool_id) or self._new_replica(pool_id)
        await journal.acquire()
        self._followed.pop(pool_id, None)
        await replica.catch_up()
        return Pool(journal, self._codec, replica, self._policy)

    async def _follow_once(self) -> None:
        owned = self.owned()
        for pool_id in await self._store.pool_ids():
            if pool_id in owned:
                continue
            if pool_id not in self._followed:
                self._followed[pool_id] = self._new_replica(pool_id)
            journal, replica = self._followed[pool_id]
            try:
                await replica.catch_up()
            except JournalCorrupt:
                _log.exception("pool %s cannot be followed", pool_id)
                self._followed[pool_id] = (journal, Replica(journal, self._codec))

    def _new_replica(self, pool_id: str) -> tuple[Journal, Replica]:
        journal = self._store.journal(pool_id)
        return journal, Replica(journal, self._codec)
