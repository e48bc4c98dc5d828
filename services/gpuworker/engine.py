"""The step protocol around the executor: step ids, epochs, stored answers and faults. Nothing is done twice."""

import logging
import secrets
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from gpuworker.core.batch import Batch
from gpuworker.core.state import Limits, StepState
from gpuworker.core.steps import BlockChanges, Drawn, SequenceId, Step, StepFailure, StepResult
from gpuworker.core.tables import BlockTable
from gpuworker.errors import LogitsNotFinite, StepRefused

logger = logging.getLogger(__name__)

StepAnswer = StepResult | StepFailure

_MAX_STORED = 2
"""Answers that are kept: a client sends one step while it waits for another, and may have got neither answer."""


@dataclass(frozen=True, slots=True)
class EngineView:
    """What a worker holds between two steps."""

    epoch: int
    last_step_id: int
    tables: Mapping[SequenceId, BlockTable]


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker says of itself and never changes while it runs."""

    worker_id: str
    model_name: str
    model_fingerprint: bytes
    dtype: str
    kernel_backend: str
    block_bytes: int  # KV bytes of one block over all layers
    limits: Limits
    phase_names: tuple[str, ...] = ()  # what the phases of a step's computation are called; empty: not timed


class Executor(Protocol):
    """A model and its KV pools; it carries out what a step says and decides nothing."""

    def move(self, changes: BlockChanges) -> None:
        """Swap-outs, then swap-ins, then copies; each in the order given (paper §4.4, §4.5)."""

    def compute(self, batch: Batch) -> Drawn:
        """The tokens of ``batch.samples``. Raises ``LogitsNotFinite``, by sample, once all KV is written."""


class Engine:
    """Answers steps, one after the other; its methods must be called from one thread.

    - The id of one of the last two steps again: its stored answer, nothing is done twice.
    - A step that is refused changes nothing, and its id can be used again.
    - Logits that are not finite: the step counts as carried out, the answer names the sequences.
    - Any other fault while moving or computing: what the KV memory holds is unknown, so a new epoch begins.
    """

    def __init__(self, identity: Identity, executor: Executor) -> None:
        self.identity = identity
        self._executor = executor
        self._state = StepState(identity.limits)
        self._epoch = _new_epoch()
        self._answers: deque[StepAnswer] = deque(maxlen=_MAX_STORED)  # of the last steps in this epoch, oldest first
        self._any_next_step = True
        self._idle_since_s: float | None = None  # when the last step was computed

    @property
    def epoch(self) -> int:
        """Names the KV memory: 63 random bits, new at every start and whenever the memory is lost."""
        return self._epoch

    @property
    def last_step_id(self) -> int:
        """The last step carried out in this epoch, 0 if there is none."""
        return self._answers[-1].step_id if self._answers else 0

    @property
    def num_sequences(self) -> int:
        """Sequences that have a block table."""
        return self._state.num_sequences

    def view(self) -> EngineView:
        """A copy of what an audit compares; changes nothing."""
        return EngineView(self._epoch, self.last_step_id, self._state.tables())

    def attach(self, *, forget_sequences: bool) -> None:
        """Greets a client. A new one has the sequences and the last steps forgotten and may begin with any step id.

        Its pool may have lost the end of its journal, and then counts on from an earlier step.
        """
        if forget_sequences:
            self._state.forget()
            self._answers.clear()
            self._any_next_step = True

    def execute(self, step: Step) -> StepAnswer:
        """Carries out a step; never raises."""
        try:
            if (stored := self._stored(step)) is not None:
                return stored
            self._check_id(step)
            step = self._state.check(step)
        except StepRefused as refusal:
            logger.warning("step %d refused: %s", step.step_id, refusal)
            return StepFailure(step.step_id, str(refusal), epoch_is_stale=refusal.epoch_is_stale)
        try:
            answer = self._carry_out(step)
        except Exception as error:  # noqa: BLE001 (whatever it is, the memory is not what the tables say)
            return self._lose_memory(step, error)
        self._answers.append(answer)
        self._any_next_step = False
        return answer

    def _stored(self, step: Step) -> StepAnswer | None:
        if step.epoch != self._epoch:
            return None
        return next((answer for answer in self._answers if answer.step_id == step.step_id), None)

    def _check_id(self, step: Step) -> None:
        if step.epoch != self._epoch:
            raise StepRefused(f"epoch is {step.epoch}, but this worker's is {self._epoch}", epoch_is_stale=True)
        next_id = self.last_step_id + 1
        if step.step_id < next_id or (step.step_id > next_id and not self._any_next_step):
            raise StepRefused(f"step_id is {step.step_id}, but the next one is {next_id}")

    def _carry_out(self, step: Step) -> StepAnswer:
        batch = self._state.apply(step)
        started_s = time.perf_counter()
        idle_s = started_s - (self._idle_since_s or started_s)
        self._executor.move(step.changes)
        sequence_ids = tuple(entry.sequence_id for entry in batch.samples)
        try:
            drawn = self._executor.compute(batch)
        except LogitsNotFinite as fault:
            self._state.sampled.clear()
            failed = tuple(dict.fromkeys(sequence_ids[index] for index in fault.row_indexes))
            message = f"step {step.step_id}: the logits of sequences {list(failed)} are not finite"
            logger.warning("%s", message)
            return StepFailure(step.step_id, message, failed_sequence_ids=failed)
        finally:
            self._idle_since_s = time.perf_counter()
        self._state.sampled.note(batch.samples, drawn.token_ids)
        return replace(
            _result(step.step_id, sequence_ids, drawn), compute_s=self._idle_since_s - started_s, idle_s=idle_s
        )

    def _lose_memory(self, step: Step, error: Exception) -> StepFailure:
        self._state.forget()
        self._epoch = _new_epoch()
        self._answers.clear()
        self._any_next_step = True
        logger.error("step %d failed; epoch %d begins", step.step_id, self._epoch, exc_info=error)
        return StepFailure(
            step.step_id, f"step {step.step_id} failed: {type(error).__name__}: {error}", epoch_is_stale=True
        )


def _result(step_id: int, sequence_ids: tuple[SequenceId, ...], drawn: Drawn) -> StepResult:
    scores, scored = drawn.scores, drawn.scored
    return StepResult(
        step_id=step_id,
        sequence_ids=sequence_ids,
        token_ids=tuple(drawn.token_ids),
        logprobs=tuple(scores.logprobs),
        num_top=tuple(scores.num_top),
        top_token_ids=tuple(scores.top_token_ids),
        top_logprobs=tuple(scores.top_logprobs),
        scored_logprobs=tuple(scored.logprobs),
        scored_top_token_ids=tuple(scored.top_token_ids),
        scored_top_logprobs=tuple(scored.top_logprobs),
        phase_s=tuple(drawn.phase_s),
    )


def _new_epoch() -> int:
    return secrets.randbits(63) | 1
