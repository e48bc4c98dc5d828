"""What a caller asks for and what it gets back, in the scheduler's own words."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NewType

from scheduler.core.constraint import TokenConstraint

RequestId = NewType("RequestId", str)
GroupId = NewType("GroupId", int)
SequenceId = NewType("SequenceId", int)


class FinishReason(Enum):
    """Why a sequence ended; the values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. ``temperature`` 0 is greedy; ``top_k`` 0 means all tokens."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StopConditions:
    """When a sequence ends.

    ``max_tokens`` counts output tokens. ``stop`` strings are matched in the output text and never emitted.
    ``stop_token_ids`` are the model's end-of-sequence ids.
    """

    max_tokens: int
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete, in one or more choices. A call with several prompts becomes several requests.

    Requests of different ``cache_salt`` never share cached blocks. ``constraint`` stands at the beginning of the
    output; every choice forks it.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    stop: StopConditions
    sampling: SamplingParams = field(default_factory=SamplingParams)
    num_choices: int = 1  # outputs to generate
    cache_salt: str = ""
    constraint: TokenConstraint | None = None
    priority: int = 0  # smaller is more urgent


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What one step added to one choice of a request.

    The concatenated ``text`` of a choice is its whole output text; ``token_ids`` and ``logprobs`` likewise, the latter
    being the model's own log-probability of each token, before temperature, top_k and top_p. The last delta of a
    choice, and only that, has a ``finish_reason``; it may have no text. ``num_cached_tokens`` counts prompt tokens
    that were not computed because the prefix cache had them.
    """

    choice_index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_cached_tokens: int = 0
    logprobs: tuple[float, ...] = ()  # per token
