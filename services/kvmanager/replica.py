"""A pool's state as its journal tells it: the way back after a restart, and how a standby follows."""

import asyncio

from kvmanager.core.pool_state import PoolState
from kvmanager.errors import BrokenPromise, JournalCorrupt, MalformedPlan
from kvmanager.ports import Codec, Journal

_PAGE = 256
"""Entries that are replayed before others on the event loop have their turn."""


class Replica:
    """State and position in the journal. ``catch_up`` brings both to the journal's end."""

    __slots__ = ("_codec", "_journal", "position", "snapshot_position", "state")

    def __init__(self, journal: Journal, codec: Codec) -> None:
        self._journal = journal
        self._codec = codec
        self.state = PoolState()
        self.position = 0
        self.snapshot_position = 0  # of the snapshot that was loaded

    async def catch_up(self) -> None:
        """Replays what the journal has beyond ``position``, from its snapshot if entries were trimmed.

        A journal that is shorter than what was replayed before was lost: then the state is what it has now. Raises
        ``JournalUnavailable`` and ``JournalCorrupt``.
        """
        while (head := await self._journal.head()) != self.position:
            if head < self.position:
                self.state, self.position = PoolState(), 0
            if self.position == 0 and await self._journal.snapshot() is not None:
                # Entries that the snapshot comprises may still be there, and need not be replayed.
                await self._load_snapshot(head)
                continue
            entries = await self._journal.entries(self.position, _PAGE)
            if not entries or entries[0].position != self.position + 1:
                await self._load_snapshot(head)
                continue
            for entry in entries:
                self._replay(entry.position, entry.content)
            await asyncio.sleep(0)

    async def _load_snapshot(self, head: int) -> None:
        snapshot = await self._journal.snapshot()
        if snapshot is None or snapshot.position <= self.position:
            raise JournalCorrupt(
                f"the journal ends at {head}, but has no entry {self.position + 1} and no snapshot of it"
            )
        self.state = PoolState.restore(self._codec.decode_snapshot(snapshot.content))
        self.position = self.snapshot_position = snapshot.position

    def _replay(self, position: int, content: bytes) -> None:
        if position != self.position + 1:
            raise JournalCorrupt(f"journal entry {position} follows entry {self.position}")
        entry = self._codec.decode_entry(content)
        try:
            self.state.replay(entry)
        except (BrokenPromise, MalformedPlan) as error:
            raise JournalCorrupt(f"journal entry {position} cannot be replayed: {error}") from error
        self.position = position
