"""What the last steps did and why, and what an epoch's steps added up to."""

from collections.abc import Sequence as Column
from dataclasses import dataclass, fields

from kvmanager.core.plan import BlockId, Grant, GroupId, Plan, PoolUsage, Preemption

NUM_REMEMBERED_STEPS = 256


@dataclass(frozen=True, slots=True)
class StepTrace:
    """What a grant does not say about how it came about."""

    num_allocated_blocks: int = 0
    evicted_block_ids: Column[BlockId] = ()  # cached blocks that were taken for other tokens
    preempted_reasons: Column[str] = ()  # per preempted group
    num_swaps_refused: int = 0  # groups that were to be swapped and were dropped, because the host pool was full
    num_prompt_tokens: int = 0  # known tokens of admitted sequences that were not swapped in
    num_hit_tokens: int = 0  # of these, found in the prefix cache
    num_ended_pins: int = 0  # because the head of the queue could never have entered beside them


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step as it was carried out, with the reasons."""

    step_id: int
    num_running_groups: int
    num_new_slots: int
    num_released_sequences: int
    admitted_group_ids: Column[GroupId]
    preempted_group_ids: Column[GroupId]
    preempted_modes: Column[Preemption]
    refusal: str
    swap_outs: Column[int]  # device block, host block, …
    swap_ins: Column[int]  # host block, device block, …
    copies: Column[int]  # source, destination, …
    usage: PoolUsage
    trace: StepTrace


def record_of(plan: Plan, grant: Grant, trace: StepTrace) -> StepRecord:
    """The record of a step. Keeps no reference to the plan, whose hashes may be many."""
    return StepRecord(
        step_id=grant.step_id,
        num_running_groups=len(plan.running.group_ids),
        num_new_slots=sum(plan.running.num_new_slots) + sum(grant.num_new_slots),
        num_released_sequences=len(plan.released),
        admitted_group_ids=grant.admitted_group_ids,
        preempted_group_ids=grant.preempted_group_ids,
        preempted_modes=grant.preempted_modes,
        refusal=grant.refusal,
        swap_outs=grant.changes.swap_outs,
        swap_ins=grant.changes.swap_ins,
        copies=grant.changes.copies,
        usage=grant.usage,
        trace=trace,
    )


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over the steps of an epoch. Part of the state, so a restart neither loses nor doubles them."""

    num_steps: int = 0
    num_recomputations: int = 0
    num_swaps: int = 0
    num_swaps_refused: int = 0
    num_swapped_out_blocks: int = 0
    num_swapped_in_blocks: int = 0
    num_copied_blocks: int = 0
    num_evicted_blocks: int = 0
    num_prompt_tokens: int = 0
    num_hit_tokens: int = 0


COUNTER_NAMES = tuple(field.name for field in fields(Counters))


class Tally:
    """Counters that grow by steps."""

    __slots__ = COUNTER_NAMES

    num_steps: int
    num_recomputations: int
    num_swaps: int
    num_swaps_refused: int
    num_swapped_out_blocks: int
    num_swapped_in_blocks: int
    num_copied_blocks: int
    num_evicted_blocks: int
    num_prompt_tokens: int
    num_hit_tokens: int

    def __init__(self, counters: Counters) -> None:
        for name in COUNTER_NAMES:
            setattr(self, name, getattr(counters, name))

    def add(self, record: StepRecord) -> None:
        """Counts one step. Most steps do nothing that is counted but themselves."""
        self.num_steps += 1
        if record.preempted_modes:
            num_swaps = record.preempted_modes.count(Preemption.SWAP)
            self.num_swaps += num_swaps
            self.num_recomputations += len(record.preempted_modes) - num_swaps
            self.num_swaps_refused += record.trace.num_swaps_refused
        if record.admitted_group_ids:
            self.num_prompt_tokens += record.trace.num_prompt_tokens
            self.num_hit_tokens += record.trace.num_hit_tokens
        self.num_swapped_out_blocks += len(record.swap_outs) // 2
        self.num_swapped_in_blocks += len(record.swap_ins) // 2
        self.num_copied_blocks += len(record.copies) // 2
        self.num_evicted_blocks += len(record.trace.evicted_block_ids)

    def freeze(self) -> Counters:
        """The numbers now."""
        return Counters(*(getattr(self, name) for name in COUNTER_NAMES))
