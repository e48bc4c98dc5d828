"""Collects what a worker has to do in one step."""

from collections.abc import Iterable

from kvmanager.core.block_table import BlockTable, Growth
from kvmanager.core.plan import BlockChanges, BlockId, Fork, SequenceId


class ChangeLog:
    """Grows while a plan is applied and ends as a frozen ``BlockChanges``."""

    __slots__ = (
        "_appended_blocks",
        "_appended_ids",
        "_appended_num",
        "_copies",
        "_dropped",
        "_forks",
        "_replaced",
        "_swap_ins",
        "_swap_outs",
    )

    def __init__(self) -> None:
        self._forks: list[Fork] = []
        self._dropped: list[SequenceId] = []
        self._replaced: list[tuple[SequenceId, int, BlockId]] = []
        self._appended_ids: list[SequenceId] = []
        self._appended_num: list[int] = []
        self._appended_blocks: list[BlockId] = []
        self._swap_outs: list[int] = []
        self._swap_ins: list[int] = []
        self._copies: list[int] = []

    def forked(self, fork: Fork) -> None:
        """A child took over the parent's table as it was at the end of the last step, and what was replaced since."""
        self._forks.append(fork)
        self._replaced += [
            (fork.child_id, index, block_id) for owner, index, block_id in self._replaced if owner == fork.parent_id
        ]

    def dropped(self, sequence_id: SequenceId) -> None:
        """A table ended, or left the device."""
        self._dropped.append(sequence_id)

    def replaced(self, table: BlockTable, index: int) -> None:
        """An entry of a table changed."""
        self._replaced.append((table.sequence_id, index, BlockId(table.blocks[index])))

    def grown(self, table: BlockTable, growth: Growth) -> None:
        """A table that the worker knows grew."""
        if growth.copied_from is not None:
            index = len(table.blocks) - growth.num_added - 1
            self.copied(growth.copied_from, BlockId(table.blocks[index]))
            self.replaced(table, index)
        if growth.num_added:
            self._append(table, growth.num_added)

    def entered(self, table: BlockTable) -> None:
        """A table that the worker does not know yet begins."""
        self._append(table, len(table.blocks))

    def copied(self, source: BlockId, destination: BlockId) -> None:
        """Copy on write."""
        self._copies += (source, destination)

    def swapped_out(self, moves: Iterable[int]) -> None:
        """Blocks left for the host: device block before host block."""
        self._swap_outs += moves

    def swapped_in(self, moves: Iterable[int]) -> None:
        """Blocks came back: host block before device block."""
        self._swap_ins += moves

    def freeze(self) -> BlockChanges:
        """The changes, without those of tables that ended in the same step."""
        dropped = set(self._dropped) if self._replaced else set()
        replaced = [entry for entry in self._replaced if entry[0] not in dropped]
        return BlockChanges(
            forks=self._forks,
            dropped=self._dropped,
            replaced_sequence_ids=[sequence_id for sequence_id, _, _ in replaced],
            replaced_indexes=[index for _, index, _ in replaced],
            replaced_block_ids=[block_id for _, _, block_id in replaced],
            appended_sequence_ids=self._appended_ids,
            appended_num_blocks=self._appended_num,
            appended_block_ids=self._appended_blocks,
            swap_outs=self._swap_outs,
            swap_ins=self._swap_ins,
            copies=self._copies,
        )

    def _append(self, table: BlockTable, num_blocks: int) -> None:
        self._appended_ids.append(table.sequence_id)
        self._appended_num.append(num_blocks)
        self._appended_blocks.extend(map(BlockId, table.blocks[len(table.blocks) - num_blocks :]))
