"""Tables of the sequences whose KV is on the device, and how they grow, are shared and end."""

from array import array
from collections.abc import Iterable
from typing import NamedTuple

from kvmanager.core.device_tier import DeviceTier
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId


class BlockTable:
    """The logical → physical map of one sequence on one tier.

    ``num_slots`` KV slots are written or granted; all blocks but the last are full. Up to ``num_writable_slots`` the
    sequence can go on without asking the pool: its last block has room and is its own.
    """

    __slots__ = ("blocks", "num_promised_blocks", "num_slots", "num_writable_slots", "sequence_id")

    def __init__(self, sequence_id: SequenceId, blocks: Iterable[int] = (), num_slots: int = 0) -> None:
        self.sequence_id = sequence_id
        self.blocks = array("I", blocks)
        self.num_slots = num_slots
        self.num_writable_slots = num_slots
        self.num_promised_blocks = 0  # length that was promised at admission


class Growth(NamedTuple):
    """What a table got: a copy of its shared last block, and ``num_added`` blocks at its end."""

    copied_from: BlockId | None
    num_added: int


class DeviceTables:
    """Tables over the device tier. Questions first, commands after them; a command that was asked for never fails."""

    __slots__ = ("_tables", "block_size", "num_promised_blocks", "tier")

    def __init__(self, tier: DeviceTier, block_size: int) -> None:
        self.tier = tier
        self.block_size = block_size
        self._tables: dict[SequenceId, BlockTable] = {}
        self.num_promised_blocks = 0  # promised to admitted sequences and not allocated yet

    def __contains__(self, sequence_id: SequenceId) -> bool:
        return sequence_id in self._tables

    def __getitem__(self, sequence_id: SequenceId) -> BlockTable:
        return self._tables[sequence_id]

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def by_id(self) -> dict[SequenceId, BlockTable]:
        """The tables in the order in which they came."""
        return self._tables

    # --- Questions ---

    def num_blocks_for(self, num_slots: int) -> int:
        """Blocks that hold ``num_slots`` slots."""
        return -(-num_slots // self.block_size)

    def num_blocks_missing(self, wants: Iterable[tuple[BlockTable, int]]) -> int:
        """Blocks that tables need to reach the given numbers of slots together, copies on write included.

        Of the owners of a shared last block the last one writes in place.
        """
        missing = 0
        writers: dict[int, int] = {}
        for table, num_slots in wants:
            if num_slots <= table.num_writable_slots:
                continue
            missing += self.num_blocks_for(num_slots) - len(table.blocks)
            if self._is_last_block_shared(table):
                last = table.blocks[-1]
                writers[last] = writers.get(last, 0) + 1
        for last, num_writers in writers.items():
            missing += min(num_writers, self.tier.pool.counts[last] - 1)
        return missing

    def _is_last_block_shared(self, table: BlockTable) -> bool:
        """Whether the next slot lies in a partly filled block that others refer to as well."""
        return table.num_slots % self.block_size != 0 and self.tier.pool.counts[table.blocks[-1]] > 1

    # --- Commands ---

    def add(self, table: BlockTable) -> None:
        """Takes a table in whose blocks already count it."""
        self._tables[table.sequence_id] = table

    def promise(self, table: BlockTable, num_slots: int) -> None:
        """Sets blocks aside for a sequence that is to grow to ``num_slots`` over several steps."""
        table.num_promised_blocks = self.num_blocks_for(num_slots)
        self.num_promised_blocks += max(0, table.num_promised_blocks - len(table.blocks))

    def grow(self, table: BlockTable, num_slots: int) -> Growth:
        """Gives a table its missing blocks; copies the last one if it is shared and about to be written."""
        if num_slots <= table.num_slots:
            return Growth(None, 0)
        blocks, take = table.blocks, self.tier.take
        copied_from = None
        if self._is_last_block_shared(table):
            copied_from = BlockId(blocks[-1])
            blocks[-1] = take()
            self.tier.pool.counts[copied_from] -= 1
        num_held = len(blocks)
        num_added = self.num_blocks_for(num_slots) - num_held
        if table.num_promised_blocks > num_held:
            self.num_promised_blocks -= min(num_added, table.num_promised_blocks - num_held)
        for _ in range(num_added):
            blocks.append(take())
        table.num_slots = num_slots
        table.num_writable_slots = len(blocks) * self.block_size
        return Growth(copied_from, num_added)

    def fork(self, parent: BlockTable, child_id: SequenceId) -> None:
        """Adds a child that shares all blocks of the parent."""
        child = BlockTable(child_id, parent.blocks, parent.num_slots)
        parent.num_writable_slots = parent.num_slots
        for block_id in child.blocks:
            self.tier.pool.counts[block_id] += 1
        self.add(child)

    def seal(self, table: BlockTable, index: int, prefix_hash: PrefixHash) -> BlockId | None:
        """Publishes a full block. Returns the block that takes its place if another one holds the same prefix."""
        own = BlockId(table.blocks[index])
        parent = self.tier.cache.hash_of(BlockId(table.blocks[index - 1])) if index else None
        known = self.tier.publish(own, prefix_hash, parent)
        if known == own:
            return None
        self.tier.share(known)
        table.blocks[index] = known
        return known

    def remove(self, table: BlockTable) -> None:
        """Forgets a table and its promise; its blocks keep their references."""
        del self._tables[table.sequence_id]
        self.num_promised_blocks -= max(0, table.num_promised_blocks - len(table.blocks))

    def release(self, table: BlockTable, step_id: int) -> None:
        """Gives a table's blocks back, the last one first."""
        self.remove(table)
        for block_id in reversed(table.blocks):
            self.tier.release(BlockId(block_id), step_id)
