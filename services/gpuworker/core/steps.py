"""The messages of a step, as values. Columns that belong together describe the same thing at each index."""

from collections.abc import Sequence as Column
from dataclasses import dataclass
from typing import NewType

from gpuworker.core.history import TokenHistory

SequenceId = NewType("SequenceId", int)
BlockId = NewType("BlockId", int)

NO_TOKEN = 2**32 - 1
"""Stands for the token of a sequence whose rules forbid every token."""

SAMPLED_TOKEN = 2**32 - 2
"""Stands in a step for the token that its sequence sampled in the step before."""


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """What happens to tables and memory before a step computes.

    Tables: forks, then dropped, replaced, appended. Memory: swap-outs, then swap-ins, then copies; the copies of a
    step behave as if all reads came first. Moves are flat pairs: source, destination, …
    """

    forks: Column[tuple[SequenceId, SequenceId]] = ()  # parent, child
    dropped: Column[SequenceId] = ()
    replaced_sequence_ids: Column[SequenceId] = ()
    replaced_indexes: Column[int] = ()  # logical block
    replaced_block_ids: Column[BlockId] = ()
    appended_sequence_ids: Column[SequenceId] = ()
    appended_num_blocks: Column[int] = ()
    appended_block_ids: Column[BlockId] = ()  # all sequences, one after the other
    swap_outs: Column[BlockId] = ()  # device, host, …
    swap_ins: Column[BlockId] = ()  # host, device, …
    copies: Column[BlockId] = ()  # device, device, …


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What forbids tokens or shifts their logits, in the order of ``docs/sampling.md``."""

    biased_token_ids: Column[int] = ()
    biases: Column[float] = ()  # per biased token
    allowed_token_ids: Column[int] = ()  # empty: all
    bad_words: Column[tuple[int, ...]] = ()  # a word's last token may not follow the others in the output
    min_tokens: int = 0  # before so many output tokens, none of the late ones
    late_token_ids: Column[int] = ()
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over the output
    frequency_penalty: float = 0.0  # over the output

    @property
    def has_penalty(self) -> bool:
        """Whether logits depend on which tokens there are already."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0

    @property
    def looks_back(self) -> bool:
        """Whether the tokens before the one to draw matter."""
        return self.has_penalty or any(len(word) > 1 for word in self.bad_words)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a sequence's tokens are chosen. ``temperature`` 0 is greedy; ``top_k`` 0 and ``min_p`` 0 mean all tokens."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0  # 64 bits
    choice_index: int = 0  # 32 bits
    min_p: float = 0.0
    num_top_logprobs: int = 0  # most probable tokens told with each sampled one
    rules: TokenRules | None = None  # none: every token as the model has it


@dataclass(frozen=True, slots=True)
class NewSequence:
    """How to sample for a sequence that the worker does not know, or no longer.

    ``token_ids`` are all tokens known so far, prompt first, where the rules look back at them.
    """

    sequence_id: SequenceId
    sampling: SamplingParams
    num_prompt_tokens: int = 0
    token_ids: Column[int] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What to compute, after what changes."""

    step_id: int
    epoch: int
    changes: BlockChanges = BlockChanges()
    new_sequences: Column[NewSequence] = ()
    sequence_ids: Column[SequenceId] = ()
    num_tokens: Column[int] = ()  # per sequence, to compute
    positions: Column[int] = ()  # of the first of them
    samples: Column[bool] = ()  # whether a token is sampled after the last of them
    token_ids: Column[int] = ()  # all sequences, one after the other
    num_choices: Column[int] = ()  # tokens to draw for the choices 0, 1, …; empty: one each, for its own choice
    token_masks: Column[bytes] = ()  # per sequence, a bit per token that may be drawn; no bytes allow all
    scored_rows: Column[int] = ()  # ascending indexes of token_ids: the log-probability of what follows is asked
    scored_token_ids: Column[int] = ()  # what follows, per scored row
    scored_num_top: Column[int] = ()  # most probable tokens told with it, per scored row


@dataclass(frozen=True, slots=True)
class StepResult:
    """The sampled tokens, in the order of the step; a sequence is named once for each choice that was drawn for it."""

    step_id: int
    sequence_ids: Column[SequenceId] = ()
    token_ids: Column[int] = ()  # NO_TOKEN where the rules forbid every token
    logprobs: Column[float] = ()  # of each token, under the model's own distribution
    compute_s: float = 0.0
    idle_s: float = 0.0  # between the last step and this one; 0 for the first
    num_top: Column[int] = ()  # per token; empty: none
    top_token_ids: Column[int] = ()  # the most probable tokens, best first; all tokens' tops one after the other
    top_logprobs: Column[float] = ()
    scored_logprobs: Column[float] = ()  # per scored row
    scored_top_token_ids: Column[int] = ()
    scored_top_logprobs: Column[float] = ()
    phase_s: Column[float] = ()  # of the compute time, by phase; empty where phases are not timed


@dataclass(frozen=True, slots=True)
class StepFailure:
    """Why a step gave no tokens.

    Without ``failed_sequence_ids`` the step was refused and nothing was changed. With them it was carried out, and
    those sequences' next tokens have no meaning; the same tokens of the others can be computed again in a later step,
    with the same result.
    """

    step_id: int
    message: str
    epoch_is_stale: bool = False
    failed_sequence_ids: Column[SequenceId] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probabilities of one token per row, and of the most probable ones, by the model's own distribution."""

    logprobs: Column[float] = ()
    num_top: Column[int] = ()  # per row; empty: none
    top_token_ids: Column[int] = ()
    top_logprobs: Column[float] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens in the order of their samples with their scores, and the scores of known tokens."""

    token_ids: Column[int] = ()
    scores: Scores = Scores()
    scored: Scores = Scores()
    phase_s: Column[float] = ()  # that the computation took, by phase


@dataclass(frozen=True, slots=True)
class Sample:
    """A token to draw: for ``sequence_id``, at ``position`` of its tokens."""

    sequence_id: SequenceId
    position: int
    params: SamplingParams
    num_prompt_tokens: int = 0
    history: TokenHistory | None = None  # of the tokens before ``position``
    mask: bytes = b""  # a bit per token that may be drawn; no bytes allow all

    @property
    def is_ruled(self) -> bool:
        """Whether anything forbids or shifts tokens."""
        return self.params.rules is not None or bool(self.mask)

    def forbidden_token_ids(self) -> list[int]:
        """Tokens that would complete a bad word, and those for which it is too early."""
        rules, history = self.params.rules, self.history
        if rules is None:
            return []
        token_ids = [word[0] for word in rules.bad_words if len(word) == 1]
        if history is not None:
            token_ids += [word[-1] for word in rules.bad_words if len(word) > 1 and history.output_ends_with(word[:-1])]
        if self.position - self.num_prompt_tokens < rules.min_tokens:
            token_ids += rules.late_token_ids
        return token_ids
