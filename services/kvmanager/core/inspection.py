"""Questions about a pool. None of them changes anything, the eviction order included.

What is asked while steps wait looks at a bounded number of blocks, or copies flat arrays. The rest is done on those
copies, by generators that yield between pieces of work of about a millisecond.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kvmanager.core.block_pool import BlockPool
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.block_table import BlockTable
from kvmanager.core.plan import BlockId, PrefixHash, SequenceId

MAX_SCANNED_BLOCKS = 4096
"""Blocks that one question looks at while steps wait."""

PIECE = 16384
"""Table entries or blocks between two yields."""

MAX_CELLS = 4096


class Tier(Enum):
    """Where a block is."""

    DEVICE = "device"
    HOST = "host"


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


@dataclass(frozen=True, slots=True)
class BlockPage:
    """Rows, where the next page starts (0: nowhere), and the tables that refer to them."""

    rows: Sequence[BlockRow]
    next_block_id: int
    tables: Sequence[TableCopy]
    block_size: int
    step_id: int


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


# --- Blocks ---


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


# --- Sequences ---


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


# --- The map ---


@dataclass(frozen=True, slots=True)
class MapSource:
    """Copies of what a map is drawn from."""

    counts: "array[int]"
    is_hashed: bytearray
    pinned: Sequence[BlockId]
    num_cells: int
    step_id: int


@dataclass(slots=True)
class PoolMap:
    """Columns: entry ``i`` counts the blocks from ``i * blocks_per_cell`` on."""

    blocks_per_cell: int
    num_blocks: int
    step_id: int
    num_used: list[int] = field(default_factory=list)
    num_shared: list[int] = field(default_factory=list)
    num_cached: list[int] = field(default_factory=list)
    num_pinned: list[int] = field(default_factory=list)


def map_source(space: BlockSpace, tier: Tier, num_cells: int) -> MapSource:
    """Copies what a map of ``num_cells`` cells needs; 0: as many as there may be."""
    view = TierView(space, tier)
    if view.is_device:
        is_hashed, pinned = space.device.tier.cache.flags(), list(space.device.tier.pins.block_ids)
    else:
        is_hashed, pinned = bytearray(view.pool.num_blocks), []
    return MapSource(view.pool.counts[:], is_hashed, pinned, num_cells or MAX_CELLS, space.last_step_id)


def draw_map(source: MapSource) -> Iterator[PoolMap | None]:
    """Yields ``None`` between pieces of work, and then the map."""
    counts, is_hashed = source.counts, source.is_hashed
    num_blocks = len(counts)
    per_cell = max(1, -(-num_blocks // max(1, min(source.num_cells, MAX_CELLS))))
    drawn = PoolMap(per_cell, num_blocks, source.step_id)
    drawn.num_pinned = [0] * -(-num_blocks // per_cell)
    for done, block_id in enumerate(source.pinned):
        counts[block_id] -= 1
        drawn.num_pinned[block_id // per_cell] += 1
        if done % PIECE == PIECE - 1:
            yield None
    looked_at = 0
    for start in range(0, num_blocks, per_cell):
        cell = counts[start : start + per_cell]
        num_idle = cell.count(0)
        drawn.num_used.append(len(cell) - num_idle)
        drawn.num_shared.append(len(cell) - num_idle - cell.count(1))
        known = is_hashed[start : start + per_cell]
        cached = sum(held and not count for count, held in zip(cell, known, strict=True)) if num_idle else 0
        drawn.num_cached.append(cached)
        looked_at += per_cell
        if looked_at > PIECE:
            looked_at = 0
            yield None
    yield drawn
