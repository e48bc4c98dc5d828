"""What every memory space answers, and how its slots are accounted (paper §2, Fig. 2)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kvmanager.core.plan import Grant, Plan, PoolUsage, SequenceId


class MemorySpace(Protocol):
    """Carries out plans in order of their step ids. ``BlockSpace`` is one."""

    @property
    def usage(self) -> PoolUsage:
        """Block counts now."""
        ...

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out and says what it got."""
        ...


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Where the KV slots of a pool are. The four add up to ``num_slots``."""

    num_slots: int
    filled: int  # hold the KV of a token
    reserved: int  # empty, but a running sequence will fill them
    internal: int  # set aside for a sequence that will end before it comes to them

    @property
    def external(self) -> int:
        """Of no use now: between chunks, rounding of chunks, or free while the queue's head does not fit."""
        return self.num_slots - self.filled - self.reserved - self.internal


@dataclass(frozen=True, slots=True)
class Lengths:
    """What only an oracle knows of a request when it enters."""

    num_prompt_tokens: int
    num_output_tokens: int
    num_sequences: int = 1

    @property
    def num_tokens(self) -> int:
        """Tokens of one sequence in the end."""
        return self.num_prompt_tokens + self.num_output_tokens


LengthsOf = Callable[[SequenceId], Lengths]
"""Looks up the request of a sequence that enters."""


class Estimate(StrEnum):
    """How many output tokens are reserved for (paper §6.1, the three versions of Orca)."""

    MAX = "max"  # as many as the model can
    POW2 = "pow2"  # the next power of two, so at most twice what is needed
    ORACLE = "oracle"  # exactly what is needed

    def num_slots(self, lengths: Lengths, max_model_len: int) -> int:
        """Slots that a sequence reserves."""
        if self is Estimate.MAX:
            return max_model_len
        num_output_tokens = lengths.num_output_tokens
        if self is Estimate.POW2:
            num_output_tokens = 1 << (num_output_tokens - 1).bit_length()
        return min(lengths.num_prompt_tokens + num_output_tokens, max_model_len)
