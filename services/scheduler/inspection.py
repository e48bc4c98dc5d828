"""What an administrator may look at and do, in the scheduler's own words. The REST API answers with these values.

Hashes are hexadecimal. ``step_id`` says as of which step an answer is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

TierName = Literal["device", "host"]
StateName = Literal["used", "shared", "cached", "free", "pinned"]
PreemptionName = Literal["recompute", "swap"]


# --- Pools ---


@dataclass(frozen=True, slots=True)
class PoolCounters:
    """Sums over the steps of an epoch; a restart of the kvmanager neither loses nor doubles them."""

    num_steps: int
    num_recomputations: int  # groups that gave way by being dropped
    num_swaps: int  # groups that gave way by swapping
    num_swaps_refused: int  # of the recomputations: swapping was asked for, but the host pool was full
    num_swapped_out_blocks: int
    num_swapped_in_blocks: int
    num_copied_blocks: int  # copy on write
    num_evicted_blocks: int
    num_prompt_tokens: int  # known tokens of admitted sequences that were not swapped in
    num_hit_tokens: int  # of these, found in the prefix cache


@dataclass(frozen=True, slots=True)
class Pool:
    """The KV memory of one worker, in numbers."""

    pool_id: str
    epoch: int
    last_step_id: int
    block_size: int  # tokens
    num_device_blocks: int
    num_host_blocks: int
    num_used_device_blocks: int  # held by a sequence
    num_cached_device_blocks: int  # hashed, held by no sequence, evictable
    num_pinned_device_blocks: int
    num_used_host_blocks: int
    watermark_blocks: int
    num_sequences: int  # on both tiers
    num_swapped_sequences: int
    pin_budget_blocks: int
    journal_position: int
    snapshot_position: int
    owner: str  # the kvmanager that holds the pool's lease
    counters: PoolCounters


@dataclass(frozen=True, slots=True)
class PoolList:
    """All pools."""

    pools: Sequence[Pool]


@dataclass(frozen=True, slots=True)
class PoolMap:
    """Columns: entry ``i`` counts the blocks of cell ``i``, from block ``i * blocks_per_cell`` on."""

    blocks_per_cell: int
    num_blocks: int
    num_used: Sequence[int]
    num_shared: Sequence[int]  # of the used ones
    num_cached: Sequence[int]
    num_pinned: Sequence[int]
    step_id: int


# --- Blocks and sequences ---


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


# --- Steps ---


@dataclass(frozen=True, slots=True)
class PreemptedGroup:
    """A group that gave way, how, and why."""

    group_id: int
    mode: PreemptionName
    reason: str


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as it was carried out, with the reasons."""

    step_id: int
    num_running_groups: int
    num_new_slots: int
    num_allocated_blocks: int
    num_released_sequences: int
    admitted_group_ids: Sequence[int]
    preempted: Sequence[PreemptedGroup]
    refusal: str  # why the head of the queue stayed out; empty: it did not
    swap_outs: Sequence[tuple[int, int]]  # device block, host block
    swap_ins: Sequence[tuple[int, int]]  # host block, device block
    copies: Sequence[tuple[int, int]]  # source, destination
    evicted_block_ids: Sequence[int]
    num_ended_pins: int
    num_used_device_blocks: int
    num_cached_device_blocks: int
    num_used_host_blocks: int


@dataclass(frozen=True, slots=True)
class StepList:
    """Steps, newest first."""

    steps: Sequence[StepRecord]


@dataclass(frozen=True, slots=True)
class Replay:
    """The pool as it was after a step."""

    first_step_id: int  # the journal reaches back to here
    last_step_id: int
    step: StepRecord | None  # null where only the state after the step is stored
    pool: Pool
    sequences: Sequence[SequenceTable]
    map: PoolMap


# --- Audit ---


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction, and in whose view it is."""

    owner: Literal["memory", "redis", "worker"]
    message: str


@dataclass(frozen=True, slots=True)
class Audit:
    """All findings; none: all views agree. ``not_compared`` says which views could not be looked at, and why."""

    pool_id: str
    step_id: int
    epoch: int
    findings: Sequence[Finding]
    not_compared: Sequence[str]
    num_checked_blocks: int
    num_checked_sequences: int


@dataclass(frozen=True, slots=True)
class Tables:
    """Block tables of all sequences on a device, as somebody sees them."""

    epoch: int
    step_id: int
    blocks: dict[int, tuple[int, ...]]  # by sequence id


# --- Commands ---


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned prefix."""

    hash: str
    num_blocks: int
    expires_at_ms: int | None  # since 1970; null: never


@dataclass(frozen=True, slots=True)
class PinList:
    """All pins of a pool."""

    pins: Sequence[Pin]
    num_pinned_blocks: int
    pin_budget_blocks: int


@dataclass(frozen=True, slots=True)
class Pinned:
    """A prefix that is pinned now."""

    hash: str
    num_blocks: int
    num_pinned_blocks: int  # of all pins together
    pin_budget_blocks: int


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A prefix that is pinned no more."""

    hash: str
    num_pinned_blocks: int  # that are left


@dataclass(frozen=True, slots=True)
class CacheReset:
    """What a reset of the prefix cache forgot."""

    num_forgotten_blocks: int
    num_ended_pins: int


# --- Requests ---


@dataclass(frozen=True, slots=True)
class LiveSequence:
    """One sequence of a live request. Its prompt is not told."""

    sequence_id: int
    choice_index: int
    status: str
    num_prompt_tokens: int
    num_output_tokens: int
    num_computed_tokens: int


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """A request that has not ended."""

    request_id: str
    group_id: int
    num_cached_tokens: int
    num_preemptions: int
    sequences: Sequence[LiveSequence]


@dataclass(frozen=True, slots=True)
class RequestList:
    """Live requests in order of arrival."""

    requests: Sequence[LiveRequest]


# --- Ports ---


class PoolInspector(Protocol):
    """The kvmanager as administrators see it.

    Raises ``NotFound``, ``RequestRefused``, ``Conflict``, and ``NotReady`` if it does not answer.
    """

    async def pools(self) -> PoolList: ...

    async def map(self, pool_id: str, tier: TierName, num_cells: int) -> PoolMap: ...

    async def blocks(self, pool_id: str, query: BlockQuery) -> BlockPage: ...

    async def sequence(self, pool_id: str, sequence_id: int) -> SequenceTable: ...

    async def tables(self, pool_id: str) -> Tables: ...

    async def sharing(self, pool_id: str, start: int, limit: int) -> Sharing: ...

    async def prefixes(self, pool_id: str, prefix_hash: bytes, start: int, limit: int) -> PrefixPage: ...

    async def steps(self, pool_id: str, count: int) -> StepList: ...

    async def replay(self, pool_id: str, step_id: int, num_cells: int) -> Replay: ...

    async def audit(self, pool_id: str) -> Audit: ...

    async def pins(self, pool_id: str) -> PinList: ...

    async def pin(self, pool_id: str, prefix_hash: bytes, ttl_s: float) -> Pinned: ...

    async def unpin(self, pool_id: str, prefix_hash: bytes) -> Unpinned: ...

    async def reset_prefix_cache(self, pool_id: str) -> CacheReset: ...

    async def close(self) -> None: ...


class WorkerInspector(Protocol):
    """A gpuworker as administrators see it. Raises ``NotReady`` if it does not answer."""

    async def tables(self) -> Tables: ...

    async def close(self) -> None: ...


class Administrator(Protocol):
    """What the engine tells of itself, and what needs it to hold still."""

    @property
    def pools(self) -> PoolInspector: ...

    async def resolve(self, pool_id: str | None) -> str:
        """The pool that is meant: ``None`` means the only one, or else the one that this scheduler uses."""

    async def audit(self, pool_id: str) -> Audit:
        """The kvmanager's audit and a comparison with the worker, between two steps."""

    def live_requests(self) -> RequestList: ...

    def prefix_hash(self, token_ids: Sequence[int], cache_salt: str) -> bytes:
        """The hash of the last full block of a prompt. Raises ``RequestRefused`` if there is none."""
