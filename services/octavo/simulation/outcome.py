"""What a simulated trace came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvmanager.core.spaces.memory_space import Occupancy


@dataclass(frozen=True, slots=True)
class Waste:
    """Where the KV slots were, as shares of the pool, averaged over time (paper, Fig. 2)."""

    filled: float
    reserved: float
    internal: float
    external: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """Averages over one trace.

    ``normalized_latency_s`` is the mean over the requests of end-to-end latency divided by output length (paper
    §6.1). Of a run that was given up as saturated it is a lower bound, and ``is_saturated`` says so.
    """

    num_requests: int
    normalized_latency_s: float
    is_saturated: bool
    num_batched: float  # requests that run at once, mean over the steps
    num_batched_sequences: float
    waste: Waste
    filled_while_waiting: float  # share of the slots that is filled, averaged over the time in which somebody waits
    shared_share: float  # of the blocks that would be needed without sharing, those that it saves (paper §6.3)
    num_steps: int
    num_preemptions: int
    simulated_s: float


@dataclass(slots=True)
class Tally:
    """Adds up while a trace runs."""

    num_returned: int = 0
    sum_latencies_s: float = 0.0  # normalized
    num_steps: int = 0
    num_group_steps: int = 0
    num_sequence_steps: int = 0
    time_s: float = 0.0
    slots_s: list[float] = field(default_factory=lambda: [0.0] * 4)
    waiting_s: float = 0.0
    filled_waiting_s: float = 0.0
    saved_blocks: int = 0
    unshared_blocks: int = 0

    def returned(self, normalized_latency_s: float) -> None:
        """Counts a request that ended."""
        self.num_returned += 1
        self.sum_latencies_s += normalized_latency_s

    def ran(self, num_groups: int, num_sequences: int, num_steps: int) -> None:
        """Counts steps of so many groups."""
        self.num_steps += num_steps
        self.num_group_steps += num_groups * num_steps
        self.num_sequence_steps += num_sequences * num_steps

    def observed(self, occupancy: Occupancy, seconds: float, *, somebody_waits: bool) -> None:
        """Weighs a look at the memory with the time since the last one."""
        if somebody_waits:
            self.waiting_s += seconds
            self.filled_waiting_s += seconds * occupancy.filled / occupancy.num_slots
        self.time_s += seconds
        parts = (occupancy.filled, occupancy.reserved, occupancy.internal, occupancy.external)
        for index, part in enumerate(parts):
            self.slots_s[index] += seconds * part / occupancy.num_slots

    def shared(self, tables: Sequence[Sequence[int]]) -> None:
        """Counts the blocks of all tables, each once and each as often as it is shared."""
        num_all = sum(map(len, tables))
        self.unshared_blocks += num_all
        self.saved_blocks += num_all - len(set().union(*tables))

    def outcome(self, simulated_s: float, num_preemptions: int, waiting_s: Sequence[float]) -> Outcome:
        """``waiting_s`` are lower bounds for requests that had not ended when the run was given up."""
        num_requests = self.num_returned + len(waiting_s)
        steps, time_s = max(1, self.num_steps), self.time_s or 1.0
        return Outcome(
            num_requests=num_requests,
            normalized_latency_s=(self.sum_latencies_s + sum(waiting_s)) / max(1, num_requests),
            is_saturated=bool(waiting_s),
            num_batched=self.num_group_steps / steps,
            num_batched_sequences=self.num_sequence_steps / steps,
            waste=Waste(*(slots_s / time_s for slots_s in self.slots_s)),
            filled_while_waiting=self.filled_waiting_s / (self.waiting_s or 1.0),
            shared_share=self.saved_blocks / max(1, self.unshared_blocks),
            num_steps=self.num_steps,
            num_preemptions=num_preemptions,
            simulated_s=simulated_s,
        )
