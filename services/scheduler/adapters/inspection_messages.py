"""Messages of the kvmanager's ``Inspector`` and of the worker's view, in the scheduler's words."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

from gpuworker.v1 import gpuworker_pb2
from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1 import kvmanager_pb2
from scheduler import inspection as view


def owner_of(name: str) -> Literal["memory", "redis"]:
    """Whose view a finding of the kvmanager is about."""
    return "redis" if name == "redis" else "memory"


def tier_of(number: int) -> view.TierName:
    """A tier's name."""
    return "host" if number == pb.TIER_HOST else "device"


def pool_of(pool: pb.Pool, owner: str) -> view.Pool:
    """A pool that ``owner`` holds the lease of."""
    counters = pool.counters
    return view.Pool(
        pool_id=pool.pool_id,
        epoch=pool.epoch,
        last_step_id=pool.last_step_id,
        block_size=pool.block_size,
        num_device_blocks=pool.num_device_blocks,
        num_host_blocks=pool.num_host_blocks,
        num_used_device_blocks=pool.num_used_device_blocks,
        num_cached_device_blocks=pool.num_cached_device_blocks,
        num_pinned_device_blocks=pool.num_pinned_device_blocks,
        num_used_host_blocks=pool.num_used_host_blocks,
        watermark_blocks=pool.watermark_blocks,
        num_sequences=pool.num_sequences,
        num_swapped_sequences=pool.num_swapped_sequences,
        pin_budget_blocks=pool.pin_budget_blocks,
        journal_position=pool.journal_position,
        snapshot_position=pool.snapshot_position,
        owner=owner,
        counters=view.PoolCounters(
            num_steps=counters.num_steps,
            num_recomputations=counters.num_recomputations,
            num_swaps=counters.num_swaps,
            num_swaps_refused=counters.num_swaps_refused,
            num_swapped_out_blocks=counters.num_swapped_out_blocks,
            num_swapped_in_blocks=counters.num_swapped_in_blocks,
            num_copied_blocks=counters.num_copied_blocks,
            num_evicted_blocks=counters.num_evicted_blocks,
            num_prompt_tokens=counters.num_prompt_tokens,
            num_hit_tokens=counters.num_hit_tokens,
        ),
    )


def map_of(drawn: pb.PoolMap) -> view.PoolMap:
    """A pool's map."""
    return view.PoolMap(
        blocks_per_cell=drawn.blocks_per_cell,
        num_blocks=drawn.num_blocks,
        num_used=list(drawn.num_used),
        num_shared=list(drawn.num_shared),
        num_cached=list(drawn.num_cached),
        num_pinned=list(drawn.num_pinned),
        step_id=drawn.step_id,
    )


def blocks_of(blocks: Iterable[pb.Block]) -> list[view.Block]:
    """Blocks of a page."""
    return [
        view.Block(
            tier=tier_of(block.tier),
            block_id=block.block_id,
            reference_count=block.reference_count,
            holders=list(block.holders),
            num_filled_slots=block.num_filled_slots,
            hash=block.hash.hex() or None,
            last_used_step_id=block.last_used_step_id,
            pinned=block.pinned,
        )
        for block in blocks
    ]


def sequence_of(table: pb.SequenceTable) -> view.SequenceTable:
    """A sequence's table."""
    columns = zip(table.block_ids, table.reference_counts, table.hashes, strict=True)
    entries = [
        view.TableEntry(logical, physical, count, prefix_hash.hex() or None)
        for logical, (physical, count, prefix_hash) in enumerate(columns)
    ]
    return view.SequenceTable(table.sequence_id, tier_of(table.tier), table.num_slots, entries, table.step_id)


def tables_of(epoch: int, step_id: int, columns: pb.Tables | gpuworker_pb2.WorkerView) -> view.Tables:
    """Tables from columns."""
    block_ids = iter(columns.block_ids)
    pairs = zip(columns.sequence_ids, columns.num_blocks, strict=True)
    return view.Tables(epoch, step_id, {sequence_id: tuple(islice(block_ids, count)) for sequence_id, count in pairs})


def step_of(step: pb.StepRecord) -> view.StepRecord:
    """One step with its reasons."""
    preempted = zip(step.preempted_group_ids, step.preempted_modes, step.preempted_reasons, strict=True)
    return view.StepRecord(
        step_id=step.step_id,
        num_running_groups=step.num_running_groups,
        num_new_slots=step.num_new_slots,
        num_allocated_blocks=step.num_allocated_blocks,
        num_released_sequences=step.num_released_sequences,
        admitted_group_ids=list(step.admitted_group_ids),
        preempted=[
            view.PreemptedGroup(group_id, "swap" if mode == kvmanager_pb2.PREEMPTION_SWAP else "recompute", reason)
            for group_id, mode, reason in preempted
        ],
        refusal=step.refusal,
        swap_outs=_pairs(step.swap_outs),
        swap_ins=_pairs(step.swap_ins),
        copies=_pairs(step.copies),
        evicted_block_ids=list(step.evicted_block_ids),
        num_ended_pins=step.num_ended_pins,
        num_used_device_blocks=step.usage.num_used_device_blocks,
        num_cached_device_blocks=step.usage.num_cached_device_blocks,
        num_used_host_blocks=step.usage.num_used_host_blocks,
    )


def _pairs(flat: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
