"""Swapped sequences: their tables on the host's blocks, and the moves there and back."""

from collections.abc import Iterable, Sequence

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.device_tier import DeviceTier
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId


class HostTier:
    """Tables over the host's blocks. Blocks that sequences shared on the device are shared here, with equal counts."""

    __slots__ = ("hashes", "pool", "tables")

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.tables: dict[SequenceId, BlockTable] = {}
        self.hashes: dict[BlockId, PrefixHash] = {}  # of blocks whose prefix was published on the device

    @property
    def num_used(self) -> int:
        """Blocks that a swapped sequence refers to."""
        return self.pool.num_blocks - self.pool.num_free

    def cached(self, block_id: BlockId, tier: DeviceTier) -> BlockId | None:
        """The device block that still holds what was swapped out to ``block_id``."""
        prefix_hash = self.hashes.get(block_id)
        return None if prefix_hash is None else tier.cache.block_of(prefix_hash)

    def has_room_for(self, tables: Iterable[BlockTable]) -> bool:
        """Whether the distinct blocks of ``tables`` fit."""
        return len(set().union(*(table.blocks for table in tables))) <= self.pool.num_free

    def swap_out(self, tables: Sequence[BlockTable], device: DeviceTables, step_id: int) -> list[int]:
        """Moves the tables of a group here and returns the moves, device block before host block."""
        moved: dict[int, BlockId] = {}
        for table in tables:
            host_table = BlockTable(table.sequence_id, num_slots=table.num_slots)
            for block_id in table.blocks:
                host_block = moved.get(block_id)
                if host_block is None:
                    host_block = moved[block_id] = self.pool.take()
                    prefix_hash = device.tier.cache.hash_of(BlockId(block_id))
                    if prefix_hash is not None:
                        self.hashes[host_block] = prefix_hash
                else:
                    self.pool.share(host_block)
                host_table.blocks.append(host_block)
            self.tables[table.sequence_id] = host_table
        for table in tables:
            device.release(table, step_id)
        return [block_id for pair in moved.items() for block_id in pair]

    def swap_in(
        self, tables: Sequence[BlockTable], device: DeviceTables, step_id: int
    ) -> tuple[list[BlockTable], list[int]]:
        """Brings the tables of a group back; what the device still caches needs no move.

        Returns the tables on the device, not yet added there, and the moves, host block before device block. Cached
        blocks are held before any block is taken, since taking evicts.
        """
        held = self._hold(tables, device.tier)
        moved: dict[int, BlockId] = {}
        returning = []
        for table in tables:
            back = BlockTable(table.sequence_id, num_slots=table.num_slots)
            for host_block in table.blocks:
                if host_block in held:
                    back.blocks.append(held[host_block])
                    continue
                if host_block in moved:
                    device.tier.share(moved[host_block])
                else:
                    before = table.blocks[len(back.blocks) - 1] if back.blocks else None
                    moved[host_block] = self._fetch(BlockId(host_block), device.tier, before)
                back.blocks.append(moved[host_block])
            returning.append(back)
        for table in tables:
            self.release(table, step_id)
        return returning, [block_id for pair in moved.items() for block_id in pair]

    def fork(self, parent: BlockTable, child_id: SequenceId) -> None:
        """Adds a swapped child that shares all blocks of a swapped parent."""
        self.tables[child_id] = BlockTable(child_id, parent.blocks, parent.num_slots)
        for block_id in parent.blocks:
            self.pool.share(BlockId(block_id))

    def seal(self, table: BlockTable, index: int, prefix_hash: PrefixHash) -> None:
        """Remembers the prefix of a block that became full just before it was swapped out."""
        self.hashes.setdefault(BlockId(table.blocks[index]), prefix_hash)

    def release(self, table: BlockTable, step_id: int) -> None:
        """Gives a swapped table's blocks back."""
        del self.tables[table.sequence_id]
        for block_id in reversed(table.blocks):
            if self.pool.release(BlockId(block_id), step_id, keep=False):
                self.hashes.pop(BlockId(block_id), None)

    def _hold(self, tables: Sequence[BlockTable], tier: DeviceTier) -> dict[int, BlockId]:
        held: dict[int, BlockId] = {}
        for table in tables:
            for block_id in table.blocks:
                known = self.cached(BlockId(block_id), tier)
                if known is not None:
                    tier.share(known)
                    held[block_id] = known
        return held

    def _fetch(self, host_block: BlockId, tier: DeviceTier, before: int | None) -> BlockId:
        """Takes a device block for a host block that stands behind ``before`` in its table."""
        device_block = tier.take()
        prefix_hash = self.hashes.get(host_block)
        if prefix_hash is not None:
            tier.publish(device_block, prefix_hash, None if before is None else self.hashes.get(BlockId(before)))
        return device_block
