"""Traces: who arrives when, and what it asks for."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from octavo.simulation.lengths import Dataset, Length, sample_lengths


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of a trace."""

    time_s: float
    length: Length
    num_sequences: int = 1
    is_beam_search: bool = False
    num_shared_tokens: int = 0  # of its prompt, the first ones are those of every other request

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return self.length.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        """Tokens of each output."""
        return self.length.num_output_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """What a trace is made of; the rate is another matter."""

    dataset: Dataset
    duration_s: float = 3600.0
    seed: int = 0
    max_model_len: int = 2048
    num_sequences: int = 1
    is_beam_search: bool = False
    num_shared_tokens: int = 0  # put before every prompt


Trace = Callable[[float], list[Arrival]]
"""The arrivals at a rate in requests per second."""


def trace(workload: Workload, rate: float) -> list[Arrival]:
    """Arrivals of a Poisson process of ``rate`` requests a second within the workload's duration (paper §6.1).

    The same seed gives the same gaps and the same lengths at every rate, stretched: curves over the rate are smooth.
    """
    draw = random.Random(workload.seed)  # noqa: S311 - reproducible, not secret
    times: list[float] = []
    now = draw.expovariate(1.0) / rate
    while now < workload.duration_s:
        times.append(now)
        now += draw.expovariate(1.0) / rate
    room = workload.max_model_len - workload.num_shared_tokens
    lengths = sample_lengths(workload.dataset, len(times), room, workload.seed)
    return [
        Arrival(
            time_s,
            Length(length.num_prompt_tokens + workload.num_shared_tokens, length.num_output_tokens),
            workload.num_sequences,
            workload.is_beam_search,
            workload.num_shared_tokens,
        )
        for time_s, length in zip(times, lengths, strict=True)
    ]
