"""One tier of a space, seen block by block."""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.block_table import BlockTable
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId

PIECE = 16384
"""Table entries or blocks between two yields."""


class Tier(Enum):
    """Where a block is."""

    DEVICE = "device"
    HOST = "host"


@dataclass(slots=True)
class BlockRow:
    """One block. ``holders`` and ``num_filled_slots`` are found after the others, on copies of the tables."""

    block_id: BlockId
    num_references: int  # by sequences; a pin is none
    prefix_hash: PrefixHash | None
    parent_hash: PrefixHash | None
    last_used_step_id: int
    is_pinned: bool
    num_filled_slots: int
    holders: list[SequenceId] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TableCopy:
    """One sequence's table."""

    sequence_id: SequenceId
    num_slots: int
    blocks: "array[int]"


class TierView:
    """One tier of a space, whichever it is."""

    __slots__ = ("_space", "is_device", "pool", "tables")

    def __init__(self, space: BlockSpace, tier: Tier) -> None:
        self._space = space
        self.is_device = tier is Tier.DEVICE
        self.pool: BlockPool = space.device.tier.pool if self.is_device else space.host.pool
        self.tables: dict[SequenceId, BlockTable] = space.device.by_id if self.is_device else space.host.tables

    def hash_of(self, block_id: BlockId) -> PrefixHash | None:
        """The prefix whose end this block holds."""
        if self.is_device:
            return self._space.device.tier.cache.hash_of(block_id)
        return self._space.host.hashes.get(block_id)

    def is_pinned(self, block_id: BlockId) -> bool:
        """Whether a pin holds this block."""
        return self.is_device and block_id in self._space.device.tier.pins

    def num_references(self, block_id: BlockId) -> int:
        """Sequences that hold this block."""
        return self.pool.counts[block_id] - self.is_pinned(block_id)

    def row(self, block_id: BlockId) -> BlockRow:
        """Everything that is known of a block without looking at tables."""
        num_references, prefix_hash = self.num_references(block_id), self.hash_of(block_id)
        is_kept = num_references == 0 and prefix_hash is not None
        now = self._space.last_step_id
        return BlockRow(
            block_id=block_id,
            num_references=num_references,
            prefix_hash=prefix_hash,
            parent_hash=self._space.device.tier.cache.parent_of(block_id) if self.is_device else None,
            last_used_step_id=now if num_references else self.pool.last_used(block_id, now),
            is_pinned=self.is_pinned(block_id),
            num_filled_slots=self._space.shape.block_size if is_kept else 0,
        )

    def copies(self) -> list[TableCopy]:
        """A copy of every table."""
        return [TableCopy(table.sequence_id, table.num_slots, table.blocks[:]) for table in self.tables.values()]
