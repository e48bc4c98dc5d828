"""A pool as it was: rebuilt from what the journal still has, beside the pool that goes on."""

import asyncio
from dataclasses import dataclass

from kvmanager.beside import beside
from kvmanager.core.history import StepRecord
from kvmanager.core.plan import Plan
from kvmanager.core.pool_state import PoolState
from kvmanager.errors import BrokenPromise, JournalCorrupt, MalformedPlan, OutOfReach
from kvmanager.ports import Codec, Journal, StoredSnapshot

_PAGE = 64
"""Entries that are fetched at once."""

_YIELD_EVERY = 8
"""Entries that are replayed before the steps of the living pool have their turn."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The pool after a step, and how far the journal reaches."""

    first_step_id: int
    position: int  # of the step's entry
    state: PoolState
    step: StepRecord | None  # the step itself; none where only the state after it is stored


class Past:
    """Rebuilds states of one pool. Reads the journal and changes nothing.

    Methods raise ``JournalUnavailable``, and ``JournalCorrupt`` for entries that are missing or cannot be replayed.
    """

    def __init__(self, journal: Journal, codec: Codec) -> None:
        self._journal = journal
        self._codec = codec

    async def at(self, position: int) -> PoolState:
        """The state that a restart would find, if the journal ended at ``position``."""
        snapshot = await self._journal.snapshot()
        if snapshot is not None and snapshot.position > position:  # written while we looked
            snapshot = await self._journal.snapshot_before()
        walk = await self._walk_from(snapshot)
        while walk.position < position:
            await walk.go_on(position)
        return walk.state

    async def after(self, epoch: int, step_id: int, end: int) -> Replayed:
        """The state after a step of the epoch that the journal is in at position ``end``.

        Raises ``OutOfReach`` for a step before the first that the journal reaches.
        """
        newest = await self._journal.snapshot()
        try:
            walk = await self._walk_from(await self._journal.snapshot_before())
            first = await self._walk_to(walk, epoch, end)
        except JournalCorrupt:
            if newest is None:
                raise
            walk = await self._walk_from(newest)  # what came before was lost, and is not needed to go on
            first = await self._walk_to(walk, epoch, end)
        if step_id < first:
            raise OutOfReach(f"step {step_id} lies before {first}, the first that the journal reaches back to")
        if newest is not None and walk.position < newest.position <= end:
            later = await self._walk_from(newest)
            if later.state.epoch == epoch and later.state.last_step_id <= step_id:
                walk = later
        while walk.state.last_step_id < step_id:
            if walk.position >= end:
                raise OutOfReach(f"step {step_id} has not been yet; the last one is {walk.state.last_step_id}")
            await walk.go_on(end, until_step=step_id)
        history = walk.state.history
        step = history[-1] if history and history[-1].step_id == step_id else None
        return Replayed(first, walk.position, walk.state, step)

    async def _walk_to(self, walk: "_Walk", epoch: int, end: int) -> int:
        """Goes on to the beginning of the epoch, or to its first known step; returns that step's id."""
        while walk.state.epoch != epoch or not walk.state.last_step_id:
            if walk.position >= end:
                return walk.state.last_step_id
            await walk.go_on(end, one_entry=True)
        return walk.state.last_step_id

    async def _walk_from(self, snapshot: StoredSnapshot | None) -> "_Walk":
        if snapshot is None:
            return _Walk(self._journal, self._codec, PoolState(), 0)
        state = await beside(lambda: self._restored(snapshot))
        return _Walk(self._journal, self._codec, state, snapshot.position)

    def _restored(self, snapshot: StoredSnapshot) -> PoolState:
        return PoolState.restore(self._codec.decode_snapshot(snapshot.content))


class _Walk:
    """A state that follows the journal, entry by entry."""

    def __init__(self, journal: Journal, codec: Codec, state: PoolState, position: int) -> None:
        self._journal = journal
        self._codec = codec
        self._fetched: dict[int, bytes] = {}
        self.state = state
        self.position = position

    async def go_on(self, end: int, *, until_step: int | None = None, one_entry: bool = False) -> None:
        """Replays the next entries, at most to ``end``; stops after the entry of ``until_step``."""
        for done in range(1 if one_entry else _YIELD_EVERY):
            if self.position >= end or (done and until_step == self.state.last_step_id):
                return
            self._replay(await self._next())
        await asyncio.sleep(0)

    async def _next(self) -> bytes:
        position = self.position + 1
        if position not in self._fetched:
            page = await self._journal.entries(self.position, _PAGE)
            self._fetched = {entry.position: entry.content for entry in page}
        if position not in self._fetched:
            raise JournalCorrupt(f"entry {position} of the journal is missing")
        return self._fetched[position]

    def _replay(self, content: bytes) -> None:
        position = self.position + 1
        entry = self._codec.decode_entry(content)
        try:
            if isinstance(entry, Plan) and not self.state.is_open:
                raise JournalCorrupt(
                    f"entry {position} of the journal is a plan, but no entry before it opens the pool"
                )
            self.state.replay(entry)
        except (BrokenPromise, MalformedPlan) as error:
            raise JournalCorrupt(f"entry {position} of the journal cannot be replayed: {error}") from error
        self.position = position
