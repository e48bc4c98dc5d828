"""A worker's tables and memory in a page: carries block changes out as the wire contract words them."""

from collections.abc import Sequence

from kvmanager.core.plan import BlockChanges


def pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    """``a, b, c, d`` as ``(a, b), (c, d)``."""
    return list(zip(flat[::2], flat[1::2], strict=True))


class WorkerMemory:
    """Slots that remember what was written to them, on a device and on a host."""

    def __init__(self, num_device_blocks: int, num_host_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.device: list[list[object]] = [[None] * block_size for _ in range(num_device_blocks)]
        self.host: list[list[object]] = [[None] * block_size for _ in range(num_host_blocks)]
        self.tables: dict[int, list[int]] = {}

    def carry_out(self, changes: BlockChanges) -> None:
        """Tables: forks, dropped, replaced, appended. Memory: swap-outs, swap-ins, copies."""
        for fork in changes.forks:
            self.tables[fork.child_id] = list(self.tables[fork.parent_id])
        for sequence_id in changes.dropped:
            del self.tables[sequence_id]
        for sequence_id, index, block_id in zip(
            changes.replaced_sequence_ids, changes.replaced_indexes, changes.replaced_block_ids, strict=True
        ):
            self.tables[sequence_id][index] = block_id
        block_ids = iter(changes.appended_block_ids)
        for sequence_id, num_blocks in zip(changes.appended_sequence_ids, changes.appended_num_blocks, strict=True):
            self.tables.setdefault(sequence_id, []).extend(next(block_ids) for _ in range(num_blocks))
        assert next(block_ids, None) is None
        for device_block, host_block in pairs(changes.swap_outs):
            self.host[host_block] = list(self.device[device_block])
        for host_block, device_block in pairs(changes.swap_ins):
            self.device[device_block] = list(self.host[host_block])
        read = [list(self.device[source]) for source, _ in pairs(changes.copies)]
        for content, (_, destination) in zip(read, pairs(changes.copies), strict=True):
            self.device[destination] = content

    def write(self, sequence_id: int, position: int, value: object) -> None:
        block_id = self.tables[sequence_id][position // self.block_size]
        self.device[block_id][position % self.block_size] = value

    def read(self, sequence_id: int, num_slots: int) -> list[object]:
        """The first ``num_slots`` slots of a sequence."""
        slots = [value for block_id in self.tables[sequence_id] for value in self.device[block_id]]
        return slots[:num_slots]
