"""The requests that have not ended."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveSequence:
    """One sequence of a live request. Its prompt is not told."""

    sequence_id: int
    choice_index: int
    status: str
    num_prompt_tokens: int
    num_output_tokens: int
    num_computed_tokens: int


@dataclass(frozen=True, slots=True)
class LiveRequest:
    """A request that has not ended."""

    request_id: str
    group_id: int
    num_cached_tokens: int
    num_preemptions: int
    sequences: Sequence[LiveSequence]


@dataclass(frozen=True, slots=True)
class RequestList:
    """Live requests in order of arrival."""

    requests: Sequence[LiveRequest]
