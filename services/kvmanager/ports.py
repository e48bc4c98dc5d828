"""What the kvmanager needs from the world, in its own words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvmanager.core.commands import Command
from kvmanager.core.plan import Plan
from kvmanager.core.pool_state import Opening, PoolStateSnapshot


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a journal. Positions are consecutive and start at 1."""

    position: int
    content: bytes


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The state after the entry at ``position``."""

    position: int
    content: bytes


class Journal(Protocol):
    """The journal of one pool, with the lease that says who may write to it.

    Every method raises ``JournalUnavailable`` when the store does not answer in time. Only the holder of the lease
    writes: ``append`` and ``save_snapshot`` check it and write in one atomic step, so a holder that was replaced
    while it slept cannot write any more.
    """

    async def acquire(self) -> None:
        """Takes the lease, or takes it again. Raises ``PoolOwnedElsewhere`` if another instance holds it."""

    async def renew(self) -> None:
        """Makes the lease last longer. Raises ``LeaseLost`` if it is not held any more."""

    async def release(self) -> None:
        """Gives the lease up, if it is held, so that another instance need not wait for its end."""

    async def append(self, position: int, content: bytes) -> None:
        """Writes the entry at ``position``; writing the same one twice is one write.

        Raises ``LeaseLost`` if the lease is not held, ``JournalAhead`` if there is an entry after ``position``, and
        ``JournalBehind`` if the one before ``position`` is missing because the store lost it.
        """

    async def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        """Writes a new snapshot and keeps the one before it with the entries since then. Raises ``LeaseLost``."""

    async def head(self) -> int:
        """Position of the last entry or of the snapshot, whichever is later; 0 if there is neither."""

    async def entries(self, after: int, limit: int) -> Sequence[Entry]:
        """The first ``limit`` entries that there are after a position."""

    async def snapshot(self) -> StoredSnapshot | None:
        """The last snapshot, if there is one."""

    async def snapshot_before(self) -> StoredSnapshot | None:
        """The snapshot before the last one, if there is one: the entries after it are still there."""


class JournalStore(Protocol):
    """Where the journals of all pools are."""

    def journal(self, pool_id: str) -> Journal:
        """The journal of a pool; a new one is empty."""

    async def pool_ids(self) -> Sequence[str]:
        """Pools that were ever opened."""

    async def ping(self) -> None:
        """Returns if the store answers; raises ``JournalUnavailable``."""

    async def close(self) -> None:
        """Closes all connections."""


class Codec(Protocol):
    """How entries and snapshots are written down. Decoding raises ``JournalCorrupt``."""

    def encode_opening(self, opening: Opening) -> bytes:
        """An entry: a caller opened the pool."""

    def encode_command(self, command: Command) -> bytes:
        """An entry: an administrator changed something. Plans are written down as they came (``Pool.grant``)."""

    def decode_entry(self, content: bytes) -> Opening | Plan | Command:
        """What an entry says, whichever kind it is."""

    def encode_snapshot(self, snapshot: PoolStateSnapshot) -> bytes:
        """A pool's whole state."""

    def decode_snapshot(self, content: bytes) -> PoolStateSnapshot:
        """The state that a snapshot holds."""
