"""From sampled tokens to the text that clients read."""

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Sequence as Column

from scheduler.core.detokenizer import Detokenizer
from scheduler.core.request import FinishReason, OutputDelta, RequestId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import Events
from scheduler.core.stop_strings import StopStrings
from scheduler.engine.streams import RequestStream
from scheduler.errors import RequestFailed, SchedulerError

logger = logging.getLogger(__name__)

Decode = Callable[[Column[int]], str]


class SequenceOutput:
    """The text of one sequence: whole characters, nothing of a stop string."""

    __slots__ = ("_detokenizer", "_logprobs", "_sequence", "_stops", "_token_ids", "group", "stream")

    def __init__(self, group: SequenceGroup, sequence: Sequence, decode: Decode, stream: RequestStream) -> None:
        self.group = group
        self._sequence = sequence
        self._detokenizer = Detokenizer(decode, sequence.token_ids)
        self._stops = StopStrings(group.request.stop.stop)
        self._token_ids: list[int] = []  # not emitted yet
        self._logprobs: list[float] = []  # likewise
        self.stream = stream

    @property
    def sequence_id(self) -> SequenceId:
        """Whose text this is."""
        return self._sequence.sequence_id

    def push(self, token_id: int, logprob: float, reason: FinishReason | None) -> FinishReason | None:
        """Takes a token and why it ended the sequence; emits what became complete; returns why it ends now.

        A stop token counts as output, but has no text.
        """
        self._token_ids.append(token_id)
        self._logprobs.append(logprob)
        is_text = token_id not in self._sequence.stop_token_ids
        text = "" if not is_text else self._stops.push(self._detokenizer.push(token_id))
        if self._stops.matched is None and reason is None:
            if text:
                self._emit(text, None)
            return None
        return self.finish(reason or FinishReason.STOP, text)

    def finish(self, reason: FinishReason, text: str = "") -> FinishReason:
        """Emits the last delta: ``text``, then what was held back. A stop string in it is why the sequence ended."""
        if self._stops.matched is None:
            text += self._stops.push(self._detokenizer.flush())
        if self._stops.matched is None:
            text += self._stops.flush()
        else:
            reason = FinishReason.STOP
        self._emit(text, reason)
        return reason

    def _emit(self, text: str, reason: FinishReason | None) -> None:
        token_ids, self._token_ids = tuple(self._token_ids), []
        logprobs, self._logprobs = tuple(self._logprobs), []
        delta = OutputDelta(
            choice_index=self._sequence.choice_index,
            text=text,
            token_ids=token_ids,
            finish_reason=reason,
            stop_reason=self._stops.matched,
            num_cached_tokens=self.group.num_cached_tokens or 0,
            logprobs=logprobs,
        )
        self.stream.put(delta)


class Outputs:
    """The open streams of one replica."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._outputs: dict[SequenceId, SequenceOutput] = {}
        self._groups: dict[RequestId, SequenceGroup] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Sequences that have not ended."""
        return len(self._outputs)

    async def wait_empty(self) -> None:
        """Returns when every stream ended."""
        await self._empty.wait()

    def find(self, request_id: RequestId) -> SequenceGroup | None:
        """The open group of a request."""
        return self._groups.get(request_id)

    def open(self, group: SequenceGroup, on_abandoned: Callable[[], None]) -> RequestStream:
        """The stream of a new group."""
        stream = RequestStream(on_abandoned)
        for sequence in group.sequences:
            self._outputs[sequence.sequence_id] = SequenceOutput(group, sequence, self._decode, stream)
        self._groups[group.request.request_id] = group
        self._empty.clear()
        return stream

    def deliver(self, events: Events) -> list[tuple[SequenceId, FinishReason]]:
        """Hands out what a step added; returns the sequences that ended, those at a stop string included."""
        ends: dict[SequenceId, FinishReason] = {}
        columns = (events.sequence_ids, events.token_ids, events.logprobs, events.finish_reasons)
        for sequence_id, token_id, logprob, reason in zip(*columns, strict=True):
            output = self._outputs.get(sequence_id)
            if output is None:  # its request failed at another choice of this step
                continue
            try:
                end = output.push(token_id, logprob, reason)
            except Exception as error:
                logger.exception("the text of sequence %d cannot be made", sequence_id)
                self.fail(output.group, RequestFailed(f"the output text cannot be made: {error}"))
                ends |= {sibling.sequence_id: FinishReason.ERROR for sibling in output.group.sequences}
                continue
            if end is not None:
                ends[sequence_id] = end
                self._remove(sequence_id)
        return list(ends.items())

    def finish(self, group: SequenceGroup, reason: FinishReason) -> None:
        """Ends a group's open sequences for ``reason``."""
        for sequence in group.sequences:
            if (output := self._outputs.get(sequence.sequence_id)) is not None:
                output.finish(reason)
                self._remove(sequence.sequence_id)

    def fail(self, group: SequenceGroup, error: SchedulerError) -> None:
        """Ends a group's stream with an error."""
        for sequence in group.sequences:
            if (output := self._outputs.get(sequence.sequence_id)) is not None:
                output.stream.end(error)
        self.drop(group)

    def fail_all(self, error: SchedulerError) -> None:
        """Ends every stream with an error."""
        for output in self._outputs.values():
            output.stream.end(error)
        self._outputs.clear()
        self._groups.clear()
        self._empty.set()

    def drop(self, group: SequenceGroup) -> None:
        """Forgets a group that nobody reads any more."""
        for sequence in group.sequences:
            self._outputs.pop(sequence.sequence_id, None)
        self._forget(group)

    def _remove(self, sequence_id: SequenceId) -> None:
        output = self._outputs.pop(sequence_id)
        if all(sequence.sequence_id not in self._outputs for sequence in output.group.sequences):
            output.stream.end()
            self._forget(output.group)

    def _forget(self, group: SequenceGroup) -> None:
        self._groups.pop(group.request.request_id, None)
        if not self._groups:
            self._empty.set()
