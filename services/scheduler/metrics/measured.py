"""Ports that time what goes through them. ``now`` is a monotonic clock in seconds."""

from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from scheduler.core.request import OutputDelta, Request
from scheduler.core.steps import Grant, Plan, Step, StepResult
from scheduler.metrics.instruments import Instruments
from scheduler.ports import Generator, Memory, PoolOpened, Worker, WorkerDescription
from scheduler.wrapped_generator import WrappedGenerator


class MeasuredMemory:
    """``Memory`` that times its grants."""

    def __init__(self, memory: Memory, instruments: Instruments, now: Callable[[], float]) -> None:
        self._memory = memory
        self._instruments = instruments
        self._now = now

    @property
    def is_open(self) -> bool:
        """The memory's."""
        return self._memory.is_open

    async def open(self, worker: WorkerDescription, *, forget_sequences: bool) -> PoolOpened:
        """As the memory."""
        return await self._memory.open(worker, forget_sequences=forget_sequences)

    async def grant(self, plan: Plan) -> Grant:
        """As the memory."""
        asked_s = self._now()
        grant = await self._memory.grant(plan)
        self._instruments.grant_s.observe(self._now() - asked_s)
        self._instruments.journal_s.observe(grant.journal_s)
        return grant

    async def close(self) -> None:
        """As the memory."""
        await self._memory.close()


class MeasuredWorker:
    """``Worker`` that times its steps, and the gaps between those that share a sequence.

    Between other steps there may have been no work, and so it says nothing how long the worker waited.
    """

    def __init__(self, worker: Worker, instruments: Instruments, now: Callable[[], float]) -> None:
        self._worker = worker
        self._instruments = instruments
        self._now = now
        self._last_sequence_ids: frozenset[int] = frozenset()
        self._last_answer_s = 0.0
        self._phase_names: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """The worker's."""
        return self._worker.is_open

    async def attach(self, *, forget_sequences: bool) -> WorkerDescription:
        """As the worker."""
        self._last_sequence_ids = frozenset()
        description = await self._worker.attach(forget_sequences=forget_sequences)
        self._phase_names = description.phase_names
        return description

    async def execute(self, step: Step) -> StepResult:
        """As the worker."""
        sent_s = self._now()
        result = await self._worker.execute(step)
        if step.sequence_ids:
            self._note_computed(step, result, sent_s)
        if not self._last_sequence_ids.isdisjoint(step.sequence_ids):
            self._instruments.step_gap_s.observe(result.idle_s)
        self._last_sequence_ids = frozenset(step.sequence_ids)
        self._last_answer_s = self._now()
        return result

    def _note_computed(self, step: Step, result: StepResult, sent_s: float) -> None:
        """A step that was queued behind another began when that one's answer was on its way."""
        self._instruments.step_s.observe(result.compute_s)
        self._instruments.computed_tokens.inc(len(step.token_ids))
        began_s = max(sent_s, self._last_answer_s)
        self._instruments.step_exchange_s.observe(max(0.0, self._now() - began_s - result.compute_s))
        for name, phase_s in zip(self._phase_names, result.phase_s, strict=False):
            self._instruments.step_phase_s.labels(name).inc(phase_s)

    async def close(self) -> None:
        """As the worker."""
        await self._worker.close()


class MeasuredGenerator(WrappedGenerator):
    """Counts tokens and times requests."""

    def __init__(self, generator: Generator, instruments: Instruments, now: Callable[[], float]) -> None:
        super().__init__(generator)
        self._instruments = instruments
        self._now = now

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """As the engine."""
        stream = super().generate(request)
        self._instruments.prompt_tokens.inc(len(request.prompt_token_ids))
        return _MeasuredStream(stream, self._instruments, self._now)


class _MeasuredStream(AsyncGenerator[OutputDelta, None]):
    def __init__(
        self, stream: AsyncGenerator[OutputDelta, None], instruments: Instruments, now: Callable[[], float]
    ) -> None:
        self._stream = stream
        self._instruments = instruments
        self._now = now
        self._started_s: float | None = now()  # None once the end was noted
        self._last_s: dict[int, float] = {}  # by choice: when it got its last token

    async def asend(self, value: None) -> OutputDelta:
        """The next delta."""
        try:
            delta = await self._stream.asend(value)
        except BaseException:
            self._note_end()
            raise
        if delta.token_ids:
            self._note_tokens(delta)
        if delta.finish_reason is not None:
            self._instruments.ended_choices.labels(delta.finish_reason.value).inc()
        return delta

    async def athrow(self, typ: object, val: object = None, tb: TracebackType | None = None) -> OutputDelta:
        """As the stream."""
        self._note_end()
        return await self._stream.athrow(typ, val, tb)  # type: ignore[call-overload,no-any-return]

    async def aclose(self) -> None:
        """As the stream."""
        self._note_end()
        await self._stream.aclose()

    def _note_tokens(self, delta: OutputDelta) -> None:
        now_s = self._now()
        self._instruments.output_tokens.inc(len(delta.token_ids))
        last_s = self._last_s.get(delta.choice_index)
        if last_s is not None:
            self._instruments.inter_token_s.observe(now_s - last_s)
        elif not self._last_s and self._started_s is not None:
            self._instruments.first_token_s.observe(now_s - self._started_s)
        self._last_s[delta.choice_index] = now_s

    def _note_end(self) -> None:
        if self._started_s is not None:
            self._instruments.request_s.observe(self._now() - self._started_s)
            self._started_s = None
