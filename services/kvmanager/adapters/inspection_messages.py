"""Messages of ``inspection.proto`` to the inspector's values and back."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from kvmanager.adapters.protobuf import PREEMPTION_NUMBER
from kvmanager.core.history import StepRecord
from kvmanager.core.inspection import BlockPage, BlockQuery, BlockRow, BlockState, PoolMap, SequenceView, Tier
from kvmanager.core.plan import HASH_BYTES, PoolUsage, PrefixHash, SequenceId
from kvmanager.errors import MalformedPlan
from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1 import kvmanager_pb2
from kvmanager.views import (
    AuditReport,
    CacheReset,
    PinView,
    PoolFacts,
    PrefixView,
    ReplayView,
    SharingView,
    TablesView,
)

_TIERS: dict[int, Tier] = {pb.TIER_UNSPECIFIED: Tier.DEVICE, pb.TIER_DEVICE: Tier.DEVICE, pb.TIER_HOST: Tier.HOST}
_TIER_NUMBERS = {Tier.DEVICE: pb.TIER_DEVICE, Tier.HOST: pb.TIER_HOST}
_STATES: dict[int, BlockState | None] = {
    pb.BLOCK_STATE_UNSPECIFIED: None,
    pb.BLOCK_STATE_USED: BlockState.USED,
    pb.BLOCK_STATE_SHARED: BlockState.SHARED,
    pb.BLOCK_STATE_CACHED: BlockState.CACHED,
    pb.BLOCK_STATE_FREE: BlockState.FREE,
    pb.BLOCK_STATE_PINNED: BlockState.PINNED,
}
DEFAULT_PAGE, MAX_PAGE = 100, 1000


# --- Requests ---


def tier_of(number: int) -> Tier:
    """The tier; the device unless another is named."""
    if number not in _TIERS:
        raise MalformedPlan(f"tier: {number} is neither DEVICE (1) nor HOST (2)")
    return _TIERS[number]


def query_of(message: pb.ListBlocksRequest) -> BlockQuery:
    """Which blocks are asked for."""
    if message.state not in _STATES:
        raise MalformedPlan(f"state: {message.state} is no BlockState")
    return BlockQuery(
        tier=tier_of(message.tier),
        state=_STATES[message.state],
        holder=SequenceId(message.holder) if message.holder else None,
        start=message.start_block_id,
        page_size=page_size_of(message.page_size),
    )


def page_size_of(number: int) -> int:
    """The page size; 0 is the default."""
    if number > MAX_PAGE:
        raise MalformedPlan(f"page_size: {number} must be at most {MAX_PAGE}")
    return number or DEFAULT_PAGE


def hash_of(content: bytes) -> PrefixHash:
    """A whole prefix hash."""
    if len(content) != HASH_BYTES:
        raise MalformedPlan(f"hash: {len(content)} bytes, must be {HASH_BYTES}")
    return PrefixHash(content)


# --- Answers ---


def pool_message(facts: PoolFacts) -> pb.Pool:
    """A pool in numbers."""
    shape, usage = facts.shape, facts.usage
    return pb.Pool(
        pool_id=facts.pool_id,
        epoch=facts.epoch,
        last_step_id=facts.last_step_id,
        block_size=shape.block_size,
        num_device_blocks=shape.num_device_blocks,
        num_host_blocks=shape.num_host_blocks,
        num_used_device_blocks=usage.num_used_device_blocks,
        num_cached_device_blocks=usage.num_cached_device_blocks,
        num_pinned_device_blocks=facts.num_pinned_blocks,
        num_used_host_blocks=usage.num_used_host_blocks,
        watermark_blocks=shape.watermark_blocks,
        num_sequences=facts.num_sequences,
        num_swapped_sequences=facts.num_swapped_sequences,
        pin_budget_blocks=facts.pin_budget_blocks,
        journal_position=facts.journal_position,
        snapshot_position=facts.snapshot_position,
        counters=pb.PoolCounters(**asdict(facts.counters)),
    )


def map_message(drawn: PoolMap) -> pb.PoolMap:
    """A pool's map."""
    return pb.PoolMap(**asdict(drawn))


def blocks_message(page: BlockPage, tier: Tier) -> pb.ListBlocksResponse:
    """A page of blocks."""
    return pb.ListBlocksResponse(
        blocks=_block_messages(page.rows, tier), next_block_id=page.next_block_id, step_id=page.step_id
    )


def sharing_message(view: SharingView) -> pb.ListSharingResponse:
    """A page of shared blocks, with the totals."""
    return pb.ListSharingResponse(
        blocks=_block_messages(view.page.rows, Tier.DEVICE),
        num_logical_blocks=view.num_logical_blocks,
        num_physical_blocks=view.num_physical_blocks,
        next_block_id=view.page.next_block_id,
        step_id=view.page.step_id,
    )


def _block_messages(rows: Iterable[BlockRow], tier: Tier) -> list[pb.Block]:
    return [
        pb.Block(
            tier=_TIER_NUMBERS[tier],
            block_id=row.block_id,
            reference_count=row.num_references,
            holders=row.holders,
            num_filled_slots=row.num_filled_slots,
            hash=row.prefix_hash or b"",
            last_used_step_id=row.last_used_step_id,
            pinned=row.is_pinned,
        )
        for row in rows
    ]


def sequence_message(view: SequenceView, step_id: int) -> pb.SequenceTable:
    """A sequence's table."""
    return pb.SequenceTable(
        sequence_id=view.sequence_id,
        tier=_TIER_NUMBERS[view.tier],
        num_slots=view.num_slots,
        block_ids=view.block_ids,
        reference_counts=view.num_references,
        hashes=[prefix_hash or b"" for prefix_hash in view.hashes],
        step_id=step_id,
    )


def tables_message(view: TablesView) -> pb.Tables:
    """All device tables as columns."""
    return pb.Tables(
        epoch=view.epoch,
        step_id=view.step_id,
        sequence_ids=[table.sequence_id for table in view.tables],
        num_blocks=[len(table.blocks) for table in view.tables],
        block_ids=[block_id for table in view.tables for block_id in table.blocks],
    )


def prefixes_message(view: PrefixView) -> pb.ListPrefixesResponse:
    """Nodes of the prefix tree."""
    nodes = [
        pb.PrefixNode(
            hash=row.prefix_hash or b"",
            parent_hash=row.parent_hash or b"",
            block_id=row.block_id,
            reference_count=row.num_references,
            pinned=row.is_pinned,
            last_used_step_id=row.last_used_step_id,
        )
        for row in view.rows
    ]
    return pb.ListPrefixesResponse(
        nodes=nodes, num_nodes=view.num_nodes, next_block_id=view.next_block_id, step_id=view.step_id
    )


def steps_message(records: Sequence[StepRecord]) -> pb.ListStepsResponse:
    """Step records, newest first."""
    return pb.ListStepsResponse(steps=[_step_message(record) for record in records])


def _step_message(record: StepRecord) -> pb.StepRecord:
    return pb.StepRecord(
        step_id=record.step_id,
        num_running_groups=record.num_running_groups,
        num_new_slots=record.num_new_slots,
        num_allocated_blocks=record.trace.num_allocated_blocks,
        num_released_sequences=record.num_released_sequences,
        admitted_group_ids=record.admitted_group_ids,
        preempted_group_ids=record.preempted_group_ids,
        preempted_modes=[PREEMPTION_NUMBER[mode] for mode in record.preempted_modes],
        preempted_reasons=record.trace.preempted_reasons,
        refusal=record.refusal,
        swap_outs=record.swap_outs,
        swap_ins=record.swap_ins,
        copies=record.copies,
        evicted_block_ids=record.trace.evicted_block_ids,
        usage=_usage_message(record.usage),
        num_ended_pins=record.trace.num_ended_pins,
    )


def _usage_message(usage: PoolUsage) -> kvmanager_pb2.PoolUsage:
    return kvmanager_pb2.PoolUsage(**asdict(usage))


def replay_message(view: ReplayView) -> pb.ReplayResponse:
    """A pool as it was."""
    return pb.ReplayResponse(
        first_step_id=view.first_step_id,
        last_step_id=view.last_step_id,
        step=None if view.step is None else _step_message(view.step),
        pool=pool_message(view.facts),
        sequences=[sequence_message(sequence, view.facts.last_step_id) for sequence in view.sequences],
        map=map_message(view.map),
    )


def audit_message(report: AuditReport) -> pb.AuditResponse:
    """All findings."""
    return pb.AuditResponse(
        step_id=report.step_id,
        epoch=report.epoch,
        findings=[pb.Finding(owner=finding.owner, message=finding.message) for finding in report.findings],
        num_checked_blocks=report.num_checked_blocks,
        num_checked_sequences=report.num_checked_sequences,
    )


def pins_message(view: PinView) -> pb.ListPinsResponse:
    """All pins."""
    pins = [
        pb.PinnedPrefix(hash=pin.prefix_hash, num_blocks=len(pin.blocks), expires_at_ms=pin.expires_at_ms)
        for pin in view.pins
    ]
    return pb.ListPinsResponse(
        pins=pins, num_pinned_blocks=view.num_pinned_blocks, pin_budget_blocks=view.pin_budget_blocks
    )


def reset_message(reset: CacheReset) -> pb.ResetPrefixCacheResponse:
    """What a reset did."""
    return pb.ResetPrefixCacheResponse(
        num_forgotten_blocks=reset.num_forgotten_blocks, num_ended_pins=reset.num_ended_pins, holders=reset.holders
    )
