"""The messages of one step, plan → grant → execute → commit, as values (docs/architecture.md).

Fields that belong together are columns: entry ``i`` of each describes the same group or sequence. A step of
hundreds of sequences is a handful of flat lists, on the wire and here.
"""

from collections.abc import Sequence as Column
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from scheduler.core.request import FinishReason, GroupId, SamplingParams, SequenceId

Top = tuple[tuple[int, float], ...]
"""The most probable tokens in one place, best first: pairs of token id and log-probability."""

NO_TOKEN = 2**32 - 1
"""Stands for the token of a sequence whose rules forbid every token."""

SAMPLED_TOKEN = 2**32 - 2
"""Stands in a step for the token that its sequence samples in the step before."""

BlockChanges = NewType("BlockChanges", object)
"""Table changes and moves from the kvmanager to a worker. The scheduler passes them through unread."""


class OutOfStepError(Exception):
    """A plan, grant or result came that does not belong to the step in hand."""


class Preemption(Enum):
    """How a victim gives its memory back (paper §4.5)."""

    RECOMPUTE = 1
    SWAP = 2


@dataclass(frozen=True, slots=True)
class RunningGroups:
    """Groups that compute in this step, most important first; the last one is the first victim."""

    group_ids: Column[GroupId] = ()
    num_sequences: Column[int] = ()  # per group
    preemptions: Column[Preemption] = ()  # per group
    sequence_ids: Column[SequenceId] = ()
    num_new_slots: Column[int] = ()  # per sequence


@dataclass(frozen=True, slots=True)
class EnteringGroups:
    """Groups that should enter, in order. ``num_tokens`` are known tokens whose KV must exist before the next."""

    token_budget: int = 0
    group_ids: Column[GroupId] = ()
    num_sequences: Column[int] = ()  # per group
    sequence_ids: Column[SequenceId] = ()
    num_tokens: Column[int] = ()  # per sequence
    prefix_hashes: Column[bytes] = ()  # per sequence, 32 bytes per full block


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step wants from the kvmanager."""

    step_id: int
    sealed_sequence_ids: Column[SequenceId] = ()
    sealed_block_indexes: Column[int] = ()
    sealed_hashes: bytes = b""  # 32 bytes per sealed block
    forks: Column[tuple[SequenceId, SequenceId]] = ()  # parent, child
    released: Column[SequenceId] = ()
    running: RunningGroups = RunningGroups()
    entering: EnteringGroups = EnteringGroups()


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """Block counts of a pool after a grant."""

    num_used_device_blocks: int
    num_cached_device_blocks: int
    num_used_host_blocks: int


@dataclass(frozen=True, slots=True)
class Grant:
    """What the kvmanager gave. All that is not named preempted was granted as asked."""

    step_id: int
    changes: BlockChanges
    usage: PoolUsage
    preempted_group_ids: Column[GroupId] = ()
    preempted_modes: Column[Preemption] = ()
    admitted_group_ids: Column[GroupId] = ()  # the first entries of the plan's entering groups
    admitted_sequence_ids: Column[SequenceId] = ()
    num_present_tokens: Column[int] = ()  # per admitted sequence: KV that is already there
    num_new_slots: Column[int] = ()  # per admitted sequence: slots after those, for this step
    refusal: str = ""
    journal_s: float = 0.0  # that the journal took to write it down


@dataclass(frozen=True, slots=True)
class NewSequence:
    """Sampling state of a sequence, told to the worker before its first step and after its table was dropped.

    ``token_ids`` are all known tokens where the rules look back at them.
    """

    sequence_id: SequenceId
    sampling: SamplingParams
    choice_index: int
    num_prompt_tokens: int = 0
    token_ids: Column[int] = ()
    min_tokens: int = 0  # before so many output tokens, none of the late tokens is drawn
    late_token_ids: Column[int] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What a worker computes. ``token_ids`` holds the tokens of all sequences, one after the other."""

    step_id: int
    epoch: int
    changes: BlockChanges
    new_sequences: Column[NewSequence] = ()
    sequence_ids: Column[SequenceId] = ()
    num_tokens: Column[int] = ()
    positions: Column[int] = ()  # of the first token of each sequence
    samples: Column[bool] = ()
    token_ids: Column[int] = ()
    num_choices: Column[int] = ()  # tokens drawn if it samples, for choices 0, 1, …; empty: one each, for its own
    token_masks: Column[bytes] = ()  # a bit for each token that may be drawn; an empty entry, or no column: all
    scored_rows: Column[int] = ()  # indexes of token_ids: the log-probability of what follows is asked
    scored_token_ids: Column[int] = ()  # what follows, per scored row
    scored_num_top: Column[int] = ()  # most probable tokens told with it, per scored row


@dataclass(frozen=True, slots=True)
class StepResult:
    """The sampled tokens, one entry per choice of each sequence that sampled, in the order of the step."""

    step_id: int
    sequence_ids: Column[SequenceId] = ()
    token_ids: Column[int] = ()
    logprobs: Column[float] = ()  # of each token, under the model's unmodified distribution
    compute_s: float = 0.0
    num_top: Column[int] = ()  # per entry; empty: none
    top_token_ids: Column[int] = ()  # the most probable tokens of all entries, one after the other
    top_logprobs: Column[float] = ()
    idle_s: float = 0.0  # that the worker waited for the step since it had computed the one before; 0 for its first
    scored_logprobs: Column[float] = ()  # per scored row of the step
    scored_top_token_ids: Column[int] = ()
    scored_top_logprobs: Column[float] = ()
    phase_s: Column[float] = ()  # of the compute time, by phase; empty where the worker does not tell


@dataclass(frozen=True, slots=True)
class Events:
    """The tokens that a committed step added. Columns; entry ``i`` of each is one sequence.

    The token is ``NO_TOKEN`` for a sequence that ended because every token was forbidden.
    """

    sequence_ids: Column[SequenceId] = ()
    token_ids: Column[int] = ()
    logprobs: Column[float] = ()
    finish_reasons: Column[FinishReason | None] = ()
    tops: Column[Top] = ()  # empty: nobody asked
    ended_searches: Column[GroupId] = ()  # beam searches that are over
