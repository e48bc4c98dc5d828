"""One pool that this kvmanager owns: exactly-once answers from journalled state."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kvmanager.core.commands import Command
from kvmanager.core.plan import Grant, Plan
from kvmanager.core.pool_state import Opening, PoolState, PoolStateSnapshot
from kvmanager.errors import (
    JournalAhead,
    JournalBehind,
    JournalUnavailable,
    LeaseLost,
    PoolNotOpen,
    PoolOwnedElsewhere,
)
from kvmanager.past import Past
from kvmanager.ports import Codec, Journal, StoredSnapshot
from kvmanager.replica import Replica

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.05
_LAST_RETRY_S = 1.0

_BLOCKS_PER_ENTRY = 50
"""Blocks of which a snapshot is written per journal entry at most."""


@dataclass(frozen=True, slots=True)
class PoolOpened:
    """What a caller is told of the pool that it opened."""

    epoch: int
    last_step_id: int
    watermark_blocks: int
    restored: bool


@dataclass(frozen=True, slots=True)
class JournalPolicy:
    """A step waits ``patience_s`` for the journal. A snapshot is written every ``snapshot_interval`` entries.

    A snapshot's cost grows with the pool, so that of a very large pool is written less often: its share of a step
    stays the same.
    """

    patience_s: float = 10.0
    snapshot_interval: int = 2000

    def snapshot_interval_of(self, num_blocks: int) -> int:
        """Entries between two snapshots of a pool with so many blocks."""
        return max(self.snapshot_interval, num_blocks // _BLOCKS_PER_ENTRY)


class Pool:
    """Answers the openings and plans of one pool, one at a time, and only what the journal has.

    An entry that the journal did not take in time stays pending: it is written before anything else is done. If
    another kvmanager took the pool over, ``is_lost`` turns true and nothing is answered any more.
    """

    def __init__(self, journal: Journal, codec: Codec, replica: Replica, policy: JournalPolicy) -> None:
        self._journal = journal
        self._codec = codec
        self._replica = replica
        self._policy = policy
        self._turn = asyncio.Lock()
        self._pending: bytes | None = None
        self._last_snapshot = replica.snapshot_position
        self._snapshot_task: asyncio.Task[None] | None = None
        self._session = 0
        self.is_lost = False
        self.journal_s = 0.0  # that the last entry took to be written

    # --- Questions ---

    @property
    def replica(self) -> Replica:
        """The state and how much of the journal it comprises."""
        return self._replica

    @property
    def snapshot_position(self) -> int:
        """Position of the last snapshot; a restart replays the entries after it."""
        return self._last_snapshot

    @property
    def past(self) -> Past:
        """The pool as it was."""
        return Past(self._journal, self._codec)

    async def ask(self, question: Callable[[Replica], T]) -> T:
        """The answer to a question between two steps. It must be quick and change nothing.

        Raises ``JournalUnavailable`` and ``PoolOwnedElsewhere`` like ``grant``: what is not journalled is not told.
        """
        async with self._turn:
            await self._write_pending()
            return question(self._replica)

    # --- Commands ---

    async def administer(self, command: Command, refuse: Callable[[PoolState], R | None]) -> R | None:
        """Carries a command out once it is journalled, unless ``refuse`` says why not.

        Raises ``BrokenPromise`` and, as ``grant``, ``JournalUnavailable`` and ``PoolOwnedElsewhere``.
        """
        async with self._turn:
            await self._write_pending()
            refusal = refuse(self._replica.state)
            if refusal is None:
                self._replica.state.administer(command)
                await self._record(self._codec.encode_command(command))
            return refusal

    async def open(self, opening: Opening) -> tuple[int, PoolOpened]:
        """Opens the pool for a new caller and returns the session that its plans name; older sessions end."""
        async with self._turn:
            await self._write_pending()
            state = self._replica.state
            state.check_opening(opening)
            self._session += 1
            session = self._session
            restored = state.open(opening)
            await self._record(self._codec.encode_opening(opening))
            opened = PoolOpened(state.epoch, state.last_step_id, opening.shape.watermark_blocks, restored)
            return session, opened

    async def grant(self, session: int, plan: Plan, encode: Callable[[Grant], bytes]) -> Grant:
        """Answers a plan once it is journalled; a repeated step gets its stored answer.

        ``encode`` writes the plan down, given what was granted. Raises ``BrokenPromise``, ``MalformedPlan``,
        ``JournalUnavailable`` (the step may be sent again) and ``PoolOwnedElsewhere``.
        """
        async with self._turn:
            if session != self._session:
                raise PoolNotOpen(f"step {plan.step_id}: another stream opened the pool after this one")
            await self._write_pending()
            stored = self._replica.state.stored_answer(plan.step_id)
            if stored is not None:
                return stored
            grant = self._replica.state.apply(plan)
            await self._record(encode(grant))
            return grant

    async def renew_lease(self) -> None:
        """Makes the lease last longer. A lost one is taken again by the next entry, if nobody else holds it."""
        try:
            await self._journal.renew()
        except (LeaseLost, JournalUnavailable) as error:
            _log.warning("lease not renewed: %s", error)
        except PoolOwnedElsewhere as error:
            self._lose(error)

    async def close(self) -> None:
        """Finishes a snapshot that is being written and gives the lease up."""
        async with self._turn:
            if self._snapshot_task is not None:
                await self._snapshot_task
            if not self.is_lost:
                await self._journal.release()

    # --- Writing the journal ---

    async def _record(self, content: bytes) -> None:
        self._pending = content
        await self._write_pending()

    async def _write_pending(self) -> None:
        if self.is_lost:
            raise PoolOwnedElsewhere("another kvmanager took the pool over")
        if self._pending is None:
            return
        position = self._replica.position + 1
        started_s = time.perf_counter()
        try:
            await self._append_patiently(position, self._pending)
        except (PoolOwnedElsewhere, JournalAhead) as error:
            self._lose(error)
            raise PoolOwnedElsewhere(f"another kvmanager took the pool over: {error}") from error
        self.journal_s = time.perf_counter() - started_s
        self._replica.position = position
        self._pending = None
        self._snapshot_in_time()

    async def _append_patiently(self, position: int, content: bytes) -> None:
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + self._policy.patience_s
        retry_s = _FIRST_RETRY_S
        while True:
            try:
                await self._append(position, content)
                return
            except JournalUnavailable as error:
                if clock() + retry_s > deadline_s:
                    raise
                _log.warning("entry %d waits for the journal: %s", position, error)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _LAST_RETRY_S)

    async def _append(self, position: int, content: bytes) -> None:
        try:
            try:
                await self._journal.append(position, content)
            except LeaseLost:
                await self._journal.acquire()
                await self._journal.append(position, content)
        except JournalBehind as error:
            # The owner's memory is the truth: what the journal lost is in a snapshot that already has this entry.
            _log.warning("the journal lost entries, writing a snapshot of memory: %s", error)
            content = await asyncio.to_thread(self._codec.encode_snapshot, self._replica.state.snapshot())
            await self._journal.save_snapshot(StoredSnapshot(position, content))
            self._last_snapshot = position

    def _snapshot_in_time(self) -> None:
        """Starts a snapshot every so many entries. Only copying the state takes the caller's time."""
        shape = self._replica.state.space.shape
        interval = self._policy.snapshot_interval_of(shape.num_device_blocks + shape.num_host_blocks)
        if self._replica.position - self._last_snapshot < interval:
            return
        if self._snapshot_task is None or self._snapshot_task.done():
            self._last_snapshot = self._replica.position
            task = self._save_snapshot(self._replica.position, self._replica.state.snapshot())
            self._snapshot_task = asyncio.create_task(task)

    async def _save_snapshot(self, position: int, snapshot: PoolStateSnapshot) -> None:
        content = await asyncio.to_thread(self._codec.encode_snapshot, snapshot)
        try:
            await self._journal.save_snapshot(StoredSnapshot(position, content))
        except (JournalUnavailable, LeaseLost, PoolOwnedElsewhere) as error:
            _log.warning("snapshot at entry %d not written: %s", position, error)

    def _lose(self, error: Exception) -> None:
        _log.error("pool lost: %s", error)
        self.is_lost = True
