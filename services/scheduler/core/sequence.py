"""Sequences and the groups they arrive in, with the one state machine they follow.

    WAITING ──admitted──▶ RUNNING ──stop, abort, failure──▶ FINISHED
       ▲                  │     ▲
       │◀───recomputed────┤     │ swapped in
       │                  ▼     │
       └──memory lost── SWAPPED ┘

A running sequence whose known tokens are not all computed yet is prefilling; that is a matter of counting, not a
state. Why a sequence ended is another field.

The sequences of a group share their prompt (paper §4.4). One of them, the trunk, computes it while its siblings wait;
at the prompt's end they are forked from it:

    trunk    ─ prompt ─┬─ output of choice 0
    siblings           ├─ output of choice 1
                       └─ output of choice 2

The same happens again after the memory of the group was dropped, whatever output it has by then.

A beam search begins with one sequence. From its first step on there is one for each beam, and each step replaces them:
see ``beam_groups``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from scheduler.core.beams import Beam, BeamSearch
from scheduler.core.constraint import ConstraintState, TokenConstraint
from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.core.request import FinishReason, GroupId, Request, SequenceId
from scheduler.core.scoring import PromptScoring
from scheduler.core.steps import NO_TOKEN, Top


class SequenceStatus(Enum):
    """Where a sequence is."""

    WAITING = "waiting"  # holds no memory; in a running group: until it is forked
    RUNNING = "running"  # holds device blocks
    SWAPPED = "swapped"  # holds host blocks
    FINISHED = "finished"


_ALLOWED = {
    SequenceStatus.WAITING: {SequenceStatus.RUNNING, SequenceStatus.FINISHED},
    SequenceStatus.RUNNING: {SequenceStatus.WAITING, SequenceStatus.SWAPPED, SequenceStatus.FINISHED},
    SequenceStatus.SWAPPED: {SequenceStatus.RUNNING, SequenceStatus.WAITING, SequenceStatus.FINISHED},
    SequenceStatus.FINISHED: set(),
}

_ENDS = {
    ConstraintState.OPEN: None,
    ConstraintState.COMPLETE: FinishReason.STOP,
    ConstraintState.BROKEN: FinishReason.ERROR,
}


class IllegalChangeError(Exception):
    """A sequence was asked to change its status in a way that the table does not allow."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and its output so far.

    ``token_ids`` are the known tokens, prompt first. The KV of the first ``num_computed_tokens`` is in memory once the
    steps in hand are carried out; that of the last sampled token is written by the step that consumes it. A step that
    is handed out while the one before it still computes consumes a token that is not known yet.
    """

    sequence_id: SequenceId
    group_id: GroupId
    token_ids: list[int]
    num_prompt_tokens: int
    max_num_tokens: int  # prompt and output together
    stop_token_ids: frozenset[int]
    cache_salt: str = ""
    constraint: TokenConstraint | None = None  # stands at the end of the output
    scoring: PromptScoring | None = None  # of the group's prompt, if it is asked for
    choice_index: int = 0
    num_branches: int = 1  # more than one: a trunk, for so many sequences, itself included
    num_computed_tokens: int = 0
    num_sealed_blocks: int = 0
    block_hashes: bytearray = field(default_factory=bytearray)  # 32 bytes per full block hashed so far
    finish_reason: FinishReason | None = None
    beam: Beam | None = None  # its output, in a beam search
    row: Top | None = None  # of a beam whose tokens are all computed: what may follow, until the other beams are there
    _status: SequenceStatus = SequenceStatus.WAITING

    @property
    def status(self) -> SequenceStatus:
        """Where the sequence is; changed by ``change_status`` alone."""
        return self._status

    @property
    def num_output_tokens(self) -> int:
        """Known tokens after the prompt."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_wanted_tokens(self) -> int:
        """Known tokens whose KV must exist before anything else happens: a trunk stops at the end of its prompt."""
        return self.num_prompt_tokens if self.num_branches > 1 else len(self.token_ids)

    @property
    def num_uncomputed_tokens(self) -> int:
        """Wanted tokens whose KV is missing: 1 while decoding, more while prefilling.

        While a step in hand samples it is the token that comes, unless that is the last one allowed. Beams and trunks
        wait for what is sampled.
        """
        num_known = self.num_wanted_tokens - self.num_computed_tokens
        if num_known > 0 or self.beam is not None or self.num_branches > 1:
            return num_known
        return int(self.num_computed_tokens + 1 < self.max_num_tokens)

    @property
    def is_finished(self) -> bool:
        """Whether it ended, for whatever reason."""
        return self.finish_reason is not None

    def change_status(self, status: SequenceStatus) -> None:
        """The one setter.

        Raises:
            IllegalChangeError: The table does not allow the change.

        """
        if status not in _ALLOWED[self._status]:
            raise IllegalChangeError(f"sequence {self.sequence_id}: {self._status.value} → {status.value}")
        self._status = status

    def finish(self, reason: FinishReason) -> None:
        """Ends the sequence."""
        self.change_status(SequenceStatus.FINISHED)
        self.finish_reason = reason

    def lose_memory(self) -> None:
        """Back to waiting: all known tokens, output included, are computed again."""
        self.change_status(SequenceStatus.WAITING)
        self.num_computed_tokens = 0
        self.num_sealed_blocks = 0
        self.row = None

    def enter(self, num_present_tokens: int, block_size: int) -> None:
        """Starts running with KV that was already there: cached prefix blocks, or what was swapped in."""
        if self._status is SequenceStatus.WAITING:
            self.num_sealed_blocks = num_present_tokens // block_size
        self.change_status(SequenceStatus.RUNNING)
        self.num_computed_tokens = num_present_tokens

    def fork_from(self, trunk: "Sequence", block_size: int) -> None:
        """Starts running on the KV of the prompt that ``trunk`` has just completed."""
        self.change_status(SequenceStatus.RUNNING)
        self.num_computed_tokens = self.num_prompt_tokens
        self.num_sealed_blocks = self.num_prompt_tokens // block_size
        if not self.block_hashes:
            self.block_hashes[:] = trunk.block_hashes[: self.num_sealed_blocks * HASH_BYTES]

    def grow(self, beam: Beam, choice_index: int) -> None:
        """Adds the last token of ``beam``, which is this sequence's with one more. ``choice_index`` is its place."""
        self.token_ids.append(beam.token_ids[-1])
        self.beam, self.row, self.choice_index = beam, None, choice_index

    def branch(self, sequence_id: SequenceId) -> "Sequence":
        """Another sequence with the same tokens in the same memory."""
        return replace(
            self, sequence_id=sequence_id, token_ids=self.token_ids[:], block_hashes=bytearray(self.block_hashes)
        )

    def append(self, token_id: int) -> FinishReason | None:
        """Adds a sampled token, and says whether it ends the sequence: a stop token, the last one allowed, or the end
        of what its grammar allows.
        """
        token_ids = self.token_ids
        if token_id == NO_TOKEN:
            return FinishReason.STOP
        if len(token_ids) >= self.max_num_tokens:  # no output was asked for
            return FinishReason.LENGTH
        token_ids.append(token_id)
        if token_id in self.stop_token_ids:
            return FinishReason.STOP
        if self.constraint is not None and (reason := _ENDS[self.constraint.advance(token_id)]) is not None:
            return reason
        return FinishReason.LENGTH if len(token_ids) >= self.max_num_tokens else None


@dataclass(slots=True, eq=False)
class SequenceGroup:
    """The sequences of one request: admitted, preempted and resumed together (paper §4.5).

    Ids rise with arrival, so the order of ids is the order of arrival.
    """

    group_id: GroupId
    request: Request
    sequences: list[Sequence]
    num_cached_tokens: int | None = None  # prompt tokens found in the prefix cache when it first entered
    num_preemptions: int = 0
    search: BeamSearch | None = None

    @property
    def num_places(self) -> int:
        """Sequences that may run at once, those still to be forked included."""
        return len(self.live_sequences) if self.search is None else self.request.num_sequences

    @property
    def live_sequences(self) -> list[Sequence]:
        """Sequences that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish_reason is None]

    @property
    def running_sequences(self) -> list[Sequence]:
        """Sequences that hold device blocks."""
        return [sequence for sequence in self.sequences if sequence.status is SequenceStatus.RUNNING]

    @property
    def is_finished(self) -> bool:
        """Whether every sequence ended."""
        return not self.live_sequences

    def entrants(self) -> list[Sequence]:
        """The sequences with which a waiting group enters: all that are swapped, or else a trunk for all that live."""
        live = self.live_sequences
        swapped = [sequence for sequence in live if sequence.status is SequenceStatus.SWAPPED]
        if swapped:
            return swapped
        trunk = live[0]
        trunk.num_branches = len(self.sequences) if len(live) > 1 else 1
        return [trunk]


def new_group(request: Request, group_id: GroupId, sequence_ids: Iterator[SequenceId]) -> SequenceGroup:
    """A waiting group with one sequence for each choice, or with the first of a beam search."""
    num_prompt_tokens = len(request.prompt_token_ids)
    beams, num_top = request.beams, request.num_prompt_logprobs
    scoring = None if num_top is None else PromptScoring(request.prompt_token_ids, num_top)
    sequences = [
        Sequence(
            sequence_id=next(sequence_ids),
            group_id=group_id,
            token_ids=list(request.prompt_token_ids),
            num_prompt_tokens=num_prompt_tokens,
            max_num_tokens=num_prompt_tokens + request.stop.max_tokens,
            stop_token_ids=request.stop.ending_token_ids,
            cache_salt=request.cache_salt,
            constraint=request.constraint and request.constraint.fork(),
            scoring=scoring,
            choice_index=choice_index,
            beam=None if beams is None else Beam(),
        )
        for choice_index in range(request.num_choices if beams is None else 1)
    ]
    search = None if beams is None else BeamSearch(beams, request.stop)
    return SequenceGroup(group_id, request, sequences, search=search)
