"""Pages of blocks, by what they are used for or by prefix."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.inspection.tiers import PIECE, BlockRow, TableCopy, Tier, TierView
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId

MAX_SCANNED_BLOCKS = 4096
"""Blocks that one question looks at while steps wait."""


class BlockState(Enum):
    """What a block is used for. A block may be in several states."""

    USED = "used"  # held by a sequence
    SHARED = "shared"  # held by two or more
    CACHED = "cached"  # has a hash, held by no sequence
    FREE = "free"  # neither used nor cached
    PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class BlockQuery:
    """Which blocks to show: at most ``page_size`` with ids of ``start`` or more."""

    tier: Tier = Tier.DEVICE
    state: BlockState | None = None
    holder: SequenceId | None = None
    start: int = 0
    page_size: int = 100


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Rows, where the next page starts (0: nowhere), and the tables that refer to them."""

    rows: Sequence[BlockRow]
    next_block_id: int
    tables: Sequence[TableCopy]
    block_size: int
    step_id: int


def blocks_page(space: BlockSpace, query: BlockQuery) -> BlockPage:
    """The next page of blocks; ``find_holders`` completes it."""
    view = TierView(space, query.tier)
    accept = _acceptor(view, query.state)
    if query.holder is not None:
        table = view.tables.get(query.holder)
        candidates: Sequence[int] = sorted(set(table.blocks)) if table else ()
        candidates = [block_id for block_id in candidates if block_id >= query.start]
        end = view.pool.num_blocks
    else:
        end = min(query.start + MAX_SCANNED_BLOCKS, view.pool.num_blocks)
        candidates = range(query.start, end)
    rows: list[BlockRow] = []
    next_block_id = end if end < view.pool.num_blocks else 0
    for block_id in map(BlockId, candidates):
        if not accept(block_id):
            continue
        if len(rows) == query.page_size:
            next_block_id = block_id
            break
        rows.append(view.row(block_id))
    is_held = any(row.num_references for row in rows)
    return BlockPage(rows, next_block_id, view.copies() if is_held else (), space.shape.block_size, space.last_step_id)


def _acceptor(view: TierView, state: BlockState | None) -> Callable[[BlockId], bool]:
    return {
        None: lambda _: True,
        BlockState.USED: lambda block_id: view.num_references(block_id) > 0,
        BlockState.SHARED: lambda block_id: view.num_references(block_id) > 1,
        BlockState.CACHED: lambda block_id: view.num_references(block_id) == 0 and view.hash_of(block_id) is not None,
        BlockState.FREE: lambda block_id: view.num_references(block_id) == 0 and view.hash_of(block_id) is None,
        BlockState.PINNED: view.is_pinned,
    }[state]


def find_holders(page: BlockPage) -> Iterator[None]:
    """Fills in who holds each row's block, and how far it is filled."""
    rows = {int(row.block_id): row for row in page.rows if row.num_references}
    looked_at = 0
    for table in page.tables:
        for index, block_id in enumerate(table.blocks):
            row = rows.get(block_id)
            if row is not None:
                row.holders.append(table.sequence_id)
                filled = min(page.block_size, table.num_slots - index * page.block_size)
                row.num_filled_slots = max(row.num_filled_slots, filled)
        looked_at += len(table.blocks)
        if looked_at > PIECE:
            looked_at = 0
            yield


def chain_rows(space: BlockSpace, prefix_hash: PrefixHash) -> list[BlockRow]:
    """The cached chain that ends with a hash, head first."""
    view = TierView(space, Tier.DEVICE)
    return [view.row(block_id) for block_id in space.device.tier.cache.chain(prefix_hash)]


def prefixes_page(space: BlockSpace, start: int, page_size: int) -> tuple[list[BlockRow], int]:
    """Blocks with a hash, in the order of ids, and where the next page starts (0: nowhere)."""
    view = TierView(space, Tier.DEVICE)
    end = min(start + MAX_SCANNED_BLOCKS, view.pool.num_blocks)
    rows: list[BlockRow] = []
    for block_id in map(BlockId, range(start, end)):
        if view.hash_of(block_id) is None:
            continue
        if len(rows) == page_size:
            return rows, block_id
        rows.append(view.row(block_id))
    return rows, end if end < view.pool.num_blocks else 0
