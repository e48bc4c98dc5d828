"""Sequences and the groups they arrive in, with the one state machine they follow.

    WAITING ──admitted──▶ RUNNING ──stop, abort, failure──▶ FINISHED
       ▲                  │     ▲
       │◀───recomputed────┤     │ swapped in
       │                  ▼     │
       └──memory lost── SWAPPED ┘

A running sequence whose known tokens are not all computed yet is prefilling; that is a matter of counting, not a
state. Why a sequence ended is another field.
"""

from dataclasses import dataclass, field
from enum import Enum

from scheduler.core.request import FinishReason, GroupId, Request, SequenceId


class SequenceStatus(Enum):
    """Where a sequence is."""

    WAITING = "waiting"  # holds no memory
    RUNNING = "running"  # holds device blocks
    SWAPPED = "swapped"  # holds host blocks
    FINISHED = "finished"


_ALLOWED = {
    SequenceStatus.WAITING: {SequenceStatus.RUNNING, SequenceStatus.FINISHED},
    SequenceStatus.RUNNING: {SequenceStatus.WAITING, SequenceStatus.SWAPPED, SequenceStatus.FINISHED},
    SequenceStatus.SWAPPED: {SequenceStatus.RUNNING, SequenceStatus.WAITING, SequenceStatus.FINISHED},
    SequenceStatus.FINISHED: set(),
}


class IllegalChangeError(Exception):
    """A sequence was asked to change its status in a way that the table does not allow."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One prompt and its output so far.

    ``token_ids`` are the known tokens, prompt first. The KV of the first ``num_computed_tokens`` of them is in
    memory; that of the last sampled one is written by the step that consumes it.
    """

    sequence_id: SequenceId
    group_id: GroupId
    token_ids: list[int]
    num_prompt_tokens: int
    max_num_tokens: int  # prompt and output together
    stop_token_ids: frozenset[int]
    choice_index: int = 0
    num_computed_tokens: int = 0
    num_sealed_blocks: int = 0
    block_hashes: bytearray = field(default_factory=bytearray)  # 32 bytes per full block hashed so far
    finish_reason: FinishReason | None = None
    _status: SequenceStatus = SequenceStatus.WAITING

    @property
    def status(self) -> SequenceStatus:
        """Where the sequence is; changed by ``change_status`` alone."""
        return self._status

    @property
    def num_uncomputed_tokens(self) -> int:
        """Known tokens whose KV is missing: 1 while decoding, more while prefilling."""
        return len(self.token_ids) - self.num_computed_tokens

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

    def enter(self, num_present_tokens: int, block_size: int) -> None:
        """Starts running with KV that was already there: cached prefix blocks, or what was swapped in."""
        if self._status is SequenceStatus.WAITING:
            self.num_sealed_blocks = num_present_tokens // block_size
        self.change_status(SequenceStatus.RUNNING)
        self.num_computed_tokens = num_present_tokens

    def append(self, token_id: int) -> FinishReason | None:
        """Adds a sampled token, and says whether it ends the sequence: a stop token, or the last one allowed."""
        token_ids = self.token_ids
        token_ids.append(token_id)
        if token_id in self.stop_token_ids:
            return FinishReason.STOP
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

    @property
    def live_sequences(self) -> list[Sequence]:
        """Sequences that have not ended."""
        return [sequence for sequence in self.sequences if sequence.finish_reason is None]

    @property
    def is_finished(self) -> bool:
        """Whether every sequence ended."""
        return not self.live_sequences
