"""How a group gives its memory back when it becomes the victim (paper §4.5)."""

from enum import StrEnum

from scheduler.core.steps import Preemption


class PreemptionMode(StrEnum):
    """How victims give way. What is asked for is recomputed all the same where the host pool is full."""

    AUTO = "auto"  # one sequence: recomputed; several: swapped
    SWAP = "swap"
    RECOMPUTE = "recompute"

    def of(self, num_sequences: int) -> Preemption:
        """What a group of so many sequences that hold memory asks for."""
        swaps = num_sequences > 1 if self is PreemptionMode.AUTO else self is PreemptionMode.SWAP
        return Preemption.SWAP if swaps else Preemption.RECOMPUTE
