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
class TokenRules:
    """What forbids tokens or shifts their logits, in the order of ``docs/sampling.md``."""

    logit_bias: tuple[tuple[int, float], ...] = ()  # token id, what is added to its logit
    allowed_token_ids: tuple[int, ...] = ()  # empty: all
    bad_words: tuple[tuple[int, ...], ...] = ()  # a word's last token may not follow the others in the output
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over the output
    frequency_penalty: float = 0.0  # over the output

    @property
    def looks_back(self) -> bool:
        """Whether the tokens before the one to draw matter."""
        has_penalty = self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        return has_penalty or any(len(word) > 1 for word in self.bad_words)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. ``temperature`` 0 is greedy; ``top_k`` 0 and ``min_p`` 0 mean all tokens."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    num_top_logprobs: int = 0  # most probable tokens told with each output token
    rules: TokenRules = field(default_factory=TokenRules)


class EarlyStopping(Enum):
    """When a beam search that has found ``width`` hypotheses is over (``early_stopping`` of transformers)."""

    ALWAYS = "always"  # at once
    HEURISTIC = "heuristic"  # when the best beam would score less than all of them if it ended now
    NEVER = "never"  # when no beam can score more at any length


@dataclass(frozen=True, slots=True)
class BeamParams:
    """How the most probable outputs are searched for."""

    width: int  # beams that grow side by side
    length_penalty: float = 1.0  # above 0 favours long outputs, below 0 short ones
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC


@dataclass(frozen=True, slots=True)
class StopConditions:
    """When a sequence ends.

    ``max_tokens`` counts output tokens. ``stop`` strings are matched in the output text and not emitted, unless
    ``include_stop_str_in_output``. ``eos_token_ids`` are the model's, ``stop_token_ids`` the caller's. Before
    ``min_tokens`` output tokens nothing ends a sequence: its ending ids are not drawn, and stop strings not matched.
    """

    max_tokens: int
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    min_tokens: int = 0
    include_stop_str_in_output: bool = False

    @property
    def ending_token_ids(self) -> frozenset[int]:
        """Tokens after which a sequence ends."""
        return self.stop_token_ids if self.ignore_eos else self.stop_token_ids | self.eos_token_ids


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to complete, in one or more choices. A call with several prompts becomes several requests.

    Requests of different ``cache_salt`` never share cached blocks. ``constraint`` stands at the beginning of the
    output; every choice forks it. With ``beams``, the choices are the best outputs that a search finds: it has neither
    token rules nor stop strings nor a constraint, and draws nothing.
    """

    request_id: RequestId
    prompt_token_ids: tuple[int, ...]
    stop: StopConditions
    sampling: SamplingParams = field(default_factory=SamplingParams)
    num_choices: int = 1  # outputs to generate
    cache_salt: str = ""
    num_prompt_logprobs: int | None = None  # most probable tokens told with each prompt token; None: nothing is told
    skip_special_tokens: bool = True  # in the output text
    constraint: TokenConstraint | None = None
    priority: int = 0  # smaller is more urgent
    beams: BeamParams | None = None

    @property
    def num_sequences(self) -> int:
        """Sequences that may run at once for it."""
        return self.num_choices if self.beams is None else self.beams.width


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How probable the model itself finds a token, before any rule, temperature, top_k or top_p."""

    token_id: int
    logprob: float | None  # None for a token that nothing precedes
    top: tuple[tuple[int, float], ...] = ()  # the most probable tokens in its place, best first, if they were asked for


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What one step added to one choice of a request.

    The concatenated ``text`` of a choice is its whole output text; ``token_ids`` and ``logprobs`` likewise, the latter
    being the model's own log-probability of each token, before temperature, top_k and top_p. The last delta of a
    choice, and only that, has a ``finish_reason``; it may have no text. ``stop_reason`` is the stop string or the
    caller's stop token that ended it. ``num_cached_tokens`` counts prompt tokens that were not computed because the
    prefix cache had them.
    """

    choice_index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    num_cached_tokens: int = 0
    logprobs: tuple[float, ...] = ()  # per token
    tops: tuple[tuple[tuple[int, float], ...], ...] = ()  # per token, if asked for: the most probable ones
    prompt_logprobs: tuple[TokenLogprob, ...] = ()  # in the first delta of a choice, if asked for
    beam_score: float | None = None  # of the output that a beam search found

    @property
    def token_logprobs(self) -> tuple[TokenLogprob, ...]:
        """One entry per token."""
        tops = self.tops or ((),) * len(self.token_ids)
        return tuple(map(TokenLogprob, self.token_ids, self.logprobs, tops))
