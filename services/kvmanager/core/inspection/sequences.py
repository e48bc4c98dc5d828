"""Block tables, logical → physical."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.block_table import BlockTable
from kvmanager.core.inspection.tiers import Tier, TierView
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId


@dataclass(frozen=True, slots=True)
class SequenceView:
    """Logical → physical. Columns: entry ``i`` is logical block ``i``."""

    sequence_id: SequenceId
    tier: Tier
    num_slots: int
    block_ids: Sequence[int]
    num_references: Sequence[int]
    hashes: Sequence[PrefixHash | None]


def sequence_view(space: BlockSpace, sequence_id: SequenceId) -> SequenceView | None:
    """A sequence's table, on whichever tier it is."""
    for tier in Tier:
        view = TierView(space, tier)
        table = view.tables.get(sequence_id)
        if table is not None:
            return _sequence_view(view, tier, table)
    return None


def sequence_views(space: BlockSpace) -> list[SequenceView]:
    """The tables of all sequences."""
    return [
        _sequence_view(view, tier, table)
        for tier in Tier
        for view in [TierView(space, tier)]
        for table in view.tables.values()
    ]


def _sequence_view(view: TierView, tier: Tier, table: BlockTable) -> SequenceView:
    block_ids = [BlockId(block_id) for block_id in table.blocks]
    return SequenceView(
        sequence_id=table.sequence_id,
        tier=tier,
        num_slots=table.num_slots,
        block_ids=block_ids,
        num_references=[view.num_references(block_id) for block_id in block_ids],
        hashes=[view.hash_of(block_id) for block_id in block_ids],
    )
