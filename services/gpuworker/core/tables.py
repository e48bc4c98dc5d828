"""Block tables of the sequences that a worker computes: logical block to block of the device pool (paper §4.3)."""

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from gpuworker.core.steps import BlockChanges, BlockId, SequenceId
from gpuworker.errors import StepRefused

BlockTable: TypeAlias = "array[int]"  # of C int (32 bits), one entry per logical block


class BlockTables:
    """Tables that change by additions only, in the order that ``BlockChanges`` states.

    A sequence begins when blocks are first appended for it, or as the child of a fork. Dropping a sequence that has
    no table is allowed: a preempted sequence lost its table before it was released.
    """

    def __init__(self, *, num_device_blocks: int, num_host_blocks: int) -> None:
        self._num_device_blocks = num_device_blocks
        self._num_host_blocks = num_host_blocks
        self._tables: dict[SequenceId, BlockTable] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def table(self, sequence_id: SequenceId) -> BlockTable:
        """The table itself, which later changes extend; ``KeyError`` for an unknown sequence."""
        return self._tables[sequence_id]

    def check(self, changes: BlockChanges) -> "LengthsAfter":
        """The lengths of the tables after ``changes``, which are not carried out. Raises ``StepRefused``."""
        self._check_block_ids(changes)
        lengths = LengthsAfter(self._tables)
        _check_forks(changes, lengths)
        lengths.drop(changes.dropped)
        _check_replaced(changes, lengths)
        _check_appended(changes, lengths)
        return lengths

    def apply(self, changes: BlockChanges) -> None:
        """Carries out the changes of the tables, which ``check`` must have accepted."""
        tables = self._tables
        for parent_id, child_id in changes.forks:
            tables[child_id] = tables[parent_id][:]
        for sequence_id in changes.dropped:
            tables.pop(sequence_id, None)
        for sequence_id, index, block_id in zip(
            changes.replaced_sequence_ids, changes.replaced_indexes, changes.replaced_block_ids, strict=True
        ):
            tables[sequence_id][index] = block_id
        start = 0
        for sequence_id, count in zip(changes.appended_sequence_ids, changes.appended_num_blocks, strict=True):
            tables.setdefault(sequence_id, array("i")).extend(changes.appended_block_ids[start : start + count])
            start += count

    def copy(self) -> dict[SequenceId, BlockTable]:
        """All tables as they are now, to look at."""
        return {sequence_id: table[:] for sequence_id, table in self._tables.items()}

    def clear(self) -> None:
        """Forgets every sequence."""
        self._tables.clear()

    def _check_block_ids(self, changes: BlockChanges) -> None:
        device, host = self._num_device_blocks, self._num_host_blocks
        _check_range("replaced_block_ids", changes.replaced_block_ids, device)
        _check_range("appended_block_ids", changes.appended_block_ids, device)
        _check_moves("swap_outs", changes.swap_outs, device, host)
        _check_moves("swap_ins", changes.swap_ins, host, device)
        _check_moves("copies", changes.copies, device, device)


class LengthsAfter:
    """Blocks per table as they will be once changes are carried out; 0 means that there is no table."""

    def __init__(self, tables: dict[SequenceId, BlockTable]) -> None:
        self._tables = tables
        self._touched: dict[SequenceId, int] = {}

    def __getitem__(self, sequence_id: SequenceId) -> int:
        if sequence_id in self._touched:
            return self._touched[sequence_id]
        return len(self._tables.get(sequence_id, ()))

    def __setitem__(self, sequence_id: SequenceId, num_blocks: int) -> None:
        self._touched[sequence_id] = num_blocks

    def drop(self, sequence_ids: Sequence[SequenceId]) -> None:
        """Those sequences have no table any more."""
        self._touched.update(dict.fromkeys(sequence_ids, 0))


def check_columns(**lengths: int) -> None:
    """Raises ``StepRefused`` unless columns of one table are of one length."""
    if len(set(lengths.values())) > 1:
        raise StepRefused(f"columns of one table differ in length: {lengths}")


def _check_range(name: str, block_ids: Sequence[BlockId], num_blocks: int) -> None:
    if block_ids and (min(block_ids) < 0 or max(block_ids) >= num_blocks):
        outside = next(block_id for block_id in block_ids if not 0 <= block_id < num_blocks)
        raise StepRefused(f"{name} holds block {outside}, but the pool has {num_blocks} blocks")


def _check_moves(name: str, pairs: Sequence[BlockId], num_sources: int, num_destinations: int) -> None:
    if len(pairs) % 2:
        raise StepRefused(f"{name} has {len(pairs)} entries, but must hold pairs")
    destinations = pairs[1::2]
    _check_range(f"{name} (source)", pairs[::2], num_sources)
    _check_range(f"{name} (destination)", destinations, num_destinations)
    if len(set(destinations)) != len(destinations):
        raise StepRefused(f"{name} writes a block more than once: {sorted(destinations)}")


def _check_forks(changes: BlockChanges, lengths: LengthsAfter) -> None:
    for parent_id, child_id in changes.forks:
        if not lengths[parent_id]:
            raise StepRefused(f"forks: sequence {parent_id} is unknown")
        if lengths[child_id]:
            raise StepRefused(f"forks: sequence {child_id} has a table already")
        lengths[child_id] = lengths[parent_id]


def _check_replaced(changes: BlockChanges, lengths: LengthsAfter) -> None:
    check_columns(
        replaced_sequence_ids=len(changes.replaced_sequence_ids),
        replaced_indexes=len(changes.replaced_indexes),
        replaced_block_ids=len(changes.replaced_block_ids),
    )
    for sequence_id, index in zip(changes.replaced_sequence_ids, changes.replaced_indexes, strict=True):
        if not 0 <= index < lengths[sequence_id]:
            raise StepRefused(
                f"replaced_indexes holds {index}, "
                f"but the table of sequence {sequence_id} has {lengths[sequence_id]} blocks"
            )


def _check_appended(changes: BlockChanges, lengths: LengthsAfter) -> None:
    counts = changes.appended_num_blocks
    check_columns(appended_sequence_ids=len(changes.appended_sequence_ids), appended_num_blocks=len(counts))
    if counts and min(counts) < 1:
        raise StepRefused(f"appended_num_blocks holds {min(counts)}, but must be at least 1")
    if sum(counts) != len(changes.appended_block_ids):
        raise StepRefused(
            f"appended_num_blocks sums to {sum(counts)}, "
            f"but appended_block_ids has {len(changes.appended_block_ids)} entries"
        )
    for sequence_id, count in zip(changes.appended_sequence_ids, counts, strict=True):
        lengths[sequence_id] += count
