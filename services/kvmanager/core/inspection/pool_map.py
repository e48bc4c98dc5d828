"""A picture of a tier: what each part of it is used for."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kvmanager.core.block_space import BlockSpace
from kvmanager.core.inspection.tiers import PIECE, Tier, TierView
from kvmanager.core.plan import BlockId

MAX_CELLS = 4096
"""The finest map."""


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
