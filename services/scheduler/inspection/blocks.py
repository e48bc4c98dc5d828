"""Blocks, tables that refer to them, and the prefix tree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

TierName = Literal["device", "host"]
StateName = Literal["used", "shared", "cached", "free", "pinned"]


@dataclass(frozen=True, slots=True)
class Block:
    """One block."""

    tier: TierName
    block_id: int
    reference_count: int  # sequences that hold it; a pin is none
    holders: Sequence[int]  # sequence ids
    num_filled_slots: int
    hash: str | None  # null: not in the prefix cache
    last_used_step_id: int
    pinned: bool


@dataclass(frozen=True, slots=True)
class BlockPage:
    """A page may hold fewer blocks than asked for, or none, although more follow."""

    blocks: Sequence[Block]
    next_start: int | None  # null: this was the last page
    step_id: int


@dataclass(frozen=True, slots=True)
class BlockQuery:
    """Which blocks: at most ``limit`` with ids of ``start`` or more."""

    tier: TierName = "device"
    state: StateName | None = None
    holder: int | None = None
    start: int = 0
    limit: int = 100


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One logical block and the physical block behind it."""

    logical: int
    physical: int
    reference_count: int
    hash: str | None


@dataclass(frozen=True, slots=True)
class SequenceTable:
    """A sequence's block table, logical → physical."""

    sequence_id: int
    tier: TierName
    num_slots: int
    blocks: Sequence[TableEntry]
    step_id: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """Shared blocks, and how much sharing saves: 1 - physical / logical (paper §6.3)."""

    num_logical_blocks: int
    num_physical_blocks: int
    saved: float
    blocks: Sequence[Block]
    next_start: int | None
    step_id: int


@dataclass(frozen=True, slots=True)
class PrefixNode:
    """A cached block as a node of the prefix tree."""

    hash: str
    parent_hash: str | None  # null: it starts a chain
    block_id: int
    reference_count: int
    pinned: bool
    last_used_step_id: int


@dataclass(frozen=True, slots=True)
class PrefixPage:
    """Nodes in the order of block ids, or of one chain, head first."""

    nodes: Sequence[PrefixNode]
    num_nodes: int  # in the whole cache
    next_start: int | None
    step_id: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Block tables of all sequences on a device, as somebody sees them."""

    epoch: int
    step_id: int
    blocks: dict[int, tuple[int, ...]]  # by sequence id
