"""Questions about a pool. None of them changes anything, the eviction order included.

What is asked while steps wait looks at a bounded number of blocks, or copies flat arrays. The rest is done on those
copies, by generators that yield between pieces of work of about a millisecond.
"""

from kvmanager.core.inspection.blocks import (
    BlockPage,
    BlockQuery,
    BlockState,
    blocks_page,
    chain_rows,
    find_holders,
    prefixes_page,
)
from kvmanager.core.inspection.pool_map import MAX_CELLS, MapSource, PoolMap, draw_map, map_source
from kvmanager.core.inspection.sequences import SequenceView, sequence_view, sequence_views
from kvmanager.core.inspection.tiers import BlockRow, TableCopy, Tier, TierView

__all__ = [
    "MAX_CELLS",
    "BlockPage",
    "BlockQuery",
    "BlockRow",
    "BlockState",
    "MapSource",
    "PoolMap",
    "SequenceView",
    "TableCopy",
    "Tier",
    "TierView",
    "blocks_page",
    "chain_rows",
    "draw_map",
    "find_holders",
    "map_source",
    "prefixes_page",
    "sequence_view",
    "sequence_views",
]
