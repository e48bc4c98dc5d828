"""What an ``Inspector`` answers."""

from dataclasses import dataclass

from kvmanager.core.history import Counters, StepRecord
from kvmanager.core.inspection import BlockPage, BlockRow, PoolMap, SequenceView, TableCopy
from kvmanager.core.pins import Pin
from kvmanager.core.plan import PoolShape, PoolUsage, SequenceId


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """A pool in numbers."""

    pool_id: str
    epoch: int
    last_step_id: int
    shape: PoolShape
    usage: PoolUsage
    num_pinned_blocks: int
    num_sequences: int
    num_swapped_sequences: int
    pin_budget_blocks: int
    journal_position: int
    snapshot_position: int
    counters: Counters


@dataclass(frozen=True, slots=True)
class TablesView:
    """The tables of all sequences on the device."""

    epoch: int
    step_id: int
    tables: list[TableCopy]


@dataclass(frozen=True, slots=True)
class SharingView:
    """Shared blocks, and what sharing saves (paper §6.3): 1 - physical / logical."""

    page: BlockPage
    num_logical_blocks: int
    num_physical_blocks: int


@dataclass(frozen=True, slots=True)
class PrefixView:
    """Nodes of the prefix tree."""

    rows: list[BlockRow]
    num_nodes: int
    next_block_id: int
    step_id: int


@dataclass(frozen=True, slots=True)
class ReplayView:
    """A pool as it was after a step."""

    first_step_id: int
    last_step_id: int
    step: StepRecord | None
    facts: PoolFacts
    sequences: list[SequenceView]
    map: PoolMap


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction, and whose it is: "memory" or "redis"."""

    owner: str
    message: str


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All findings as of one step."""

    step_id: int
    epoch: int
    findings: list[Finding]
    num_checked_blocks: int
    num_checked_sequences: int


@dataclass(frozen=True, slots=True)
class PinView:
    """All pins of a pool."""

    pins: list[Pin]
    num_pinned_blocks: int
    pin_budget_blocks: int


@dataclass(frozen=True, slots=True)
class PinRefused:
    """Why a prefix was not pinned."""

    reason: str
    is_unknown: bool


@dataclass(frozen=True, slots=True)
class CacheReset:
    """What a reset forgot, or the sequences in its way."""

    num_forgotten_blocks: int
    num_ended_pins: int
    holders: list[SequenceId]
