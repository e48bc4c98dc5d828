"""What steps did, and what the pool looked like after one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scheduler.inspection.blocks import SequenceTable
from scheduler.inspection.pools import Pool, PoolMap

PreemptionName = Literal["recompute", "swap"]


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
