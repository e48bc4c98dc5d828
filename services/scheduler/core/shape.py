"""What bounds a scheduler: how much one step may do, and the memory it schedules."""

from dataclasses import dataclass

from scheduler.core.limits import Limits
from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.core.prefix_hash import PrefixDomain


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How much one step may do, and in which order groups are served."""

    max_num_batched_tokens: int = 512  # tokens computed in one step
    max_num_seqs: int = 64  # sequences running at once
    preemption_mode: PreemptionMode = PreemptionMode.AUTO
    policy: SchedulingPolicy = SchedulingPolicy.FCFS

    def __post_init__(self) -> None:
        """Refuses a budget that could not even decode what runs."""
        if not 1 <= self.max_num_seqs <= self.max_num_batched_tokens:
            raise ValueError(
                f"max_num_seqs is {self.max_num_seqs}, but must be from 1 to max_num_batched_tokens, "
                f"which is {self.max_num_batched_tokens}"
            )


@dataclass(frozen=True, slots=True)
class MemoryShape:
    """The memory that a worker's current life offers."""

    epoch: int
    last_step_id: int  # the last step answered in this epoch; the next plan follows it
    limits: Limits
    domain: PrefixDomain
