"""The messages of a step, as values (DESIGN §2). Columns that belong together describe the same thing at each index."""

from collections.abc import Sequence as Column
from dataclasses import dataclass
from typing import NewType

SequenceId = NewType("SequenceId", int)
BlockId = NewType("BlockId", int)


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
class SamplingParams:
    """How a sequence's tokens are chosen. ``temperature`` 0 is greedy; ``top_k`` 0 means all tokens."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0  # 64 bits
    choice_index: int = 0  # 32 bits


@dataclass(frozen=True, slots=True)
class NewSequence:
    """The sampling parameters of a sequence that the worker does not know, or no longer."""

    sequence_id: SequenceId
    sampling: SamplingParams


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


@dataclass(frozen=True, slots=True)
class StepResult:
    """The sampled tokens, in the order of the step; a sequence is named once for each choice that was drawn for it."""

    step_id: int
    sequence_ids: Column[SequenceId] = ()
    token_ids: Column[int] = ()
    logprobs: Column[float] = ()  # of each token, under the model's own distribution
    compute_s: float = 0.0


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
class Drawn:
    """Tokens in the order of their samples, and the log-probabilities that the model itself gives them."""

    token_ids: Column[int] = ()
    logprobs: Column[float] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """A token to draw: for ``sequence_id``, at ``position`` of its tokens."""

    sequence_id: SequenceId
    position: int
    params: SamplingParams
