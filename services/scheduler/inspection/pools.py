"""What a pool is in numbers."""

from collections.abc import Sequence
from dataclasses import dataclass


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
