"""From sampled tokens to the text that clients read."""

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Sequence as Column
from functools import partial
from typing import Protocol

from scheduler.core.detokenizer import Detokenizer, ends_within_character
from scheduler.core.request import FinishReason, GroupId, OutputDelta, Request, RequestId, SequenceId
from scheduler.core.sequence import Sequence, SequenceGroup
from scheduler.core.steps import NO_TOKEN, Events, Top
from scheduler.core.stop_strings import StopStrings
from scheduler.engine.search_output import SearchOutput
from scheduler.engine.streams import RequestStream
from scheduler.errors import RequestFailed, SchedulerError

logger = logging.getLogger(__name__)


class Decode(Protocol):
    """Turns token ids into text."""

    def __call__(self, token_ids: Column[int], *, skip_special_tokens: bool = True) -> str: ...


class SequenceOutput:
    """The text of one sequence: whole characters, nothing of a stop string."""

    __slots__ = (
        "_conditions",
        "_detokenizer",
        "_is_begun",
        "_logprobs",
        "_num_tokens",
        "_sequence",
        "_stop_token_id",
        "_stops",
        "_token_ids",
        "_tops",
        "group",
        "stream",
    )

    def __init__(
        self, group: SequenceGroup, sequence: Sequence, detokenizer: Detokenizer, stream: RequestStream
    ) -> None:
        self.group = group
        self._sequence = sequence
        self._conditions = group.request.stop
        self._detokenizer = detokenizer
        self._stops = StopStrings(self._conditions.stop, includes_match=self._conditions.include_stop_str_in_output)
        self._num_tokens = 0
        self._token_ids: list[int] = []  # not emitted yet
        self._logprobs: list[float] = []  # likewise
        self._tops: list[Top] = []  # likewise
        self._stop_token_id: int | None = None  # the caller's, that ended the sequence
        self._is_begun = False
        self.stream = stream

    @property
    def sequence_id(self) -> SequenceId:
        """Whose text this is."""
        return self._sequence.sequence_id

    def push(self, token_id: int, logprob: float, top: Top, reason: FinishReason | None) -> FinishReason | None:
        """Takes a token and why it ended the sequence; emits what became complete; returns why it ends now.

        A stop token counts as output, but has no text unless that is asked for.
        """
        if token_id == NO_TOKEN or not self._conditions.max_tokens:
            return self.finish(reason or FinishReason.STOP)
        self._num_tokens += 1
        self._token_ids.append(token_id)
        self._logprobs.append(logprob)
        self._tops.append(top)
        text = self._text_of(token_id)
        if self._stops.matched is None and reason is None:
            if text:
                self._emit(text, None)
            return None
        return self.finish(reason or FinishReason.STOP, text)

    def _text_of(self, token_id: int) -> str:
        """What may be emitted now that this token came."""
        if token_id in self._sequence.stop_token_ids:
            if token_id in self._conditions.stop_token_ids:
                self._stop_token_id = token_id
            if not self._conditions.include_stop_str_in_output:
                return ""
        text = self._detokenizer.push(token_id)
        return text if self._num_tokens <= self._conditions.min_tokens else self._stops.push(text)

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
        tops, self._tops = tuple(self._tops), []
        scoring = None if self._is_begun else self._sequence.scoring
        self._is_begun = True
        delta = OutputDelta(
            choice_index=self._sequence.choice_index,
            text=text,
            token_ids=token_ids,
            finish_reason=reason,
            stop_reason=self._stop_token_id if self._stops.matched is None else self._stops.matched,
            num_cached_tokens=self.group.num_cached_tokens or 0,
            logprobs=logprobs,
            tops=tops if self.group.request.sampling.num_top_logprobs else (),
            prompt_logprobs=tuple(scoring.entries) if scoring is not None else (),
        )
        self.stream.put(delta)


class Outputs:
    """The open streams of one replica."""

    def __init__(self, decode: Decode, token_bytes: Callable[[int], bytes]) -> None:
        self._decode = decode
        self._token_bytes = token_bytes
        self._outputs: dict[SequenceId, SequenceOutput] = {}
        self._searches: dict[GroupId, SearchOutput] = {}
        self._groups: dict[RequestId, SequenceGroup] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        """Sequences and searches that have not ended."""
        return len(self._outputs) + len(self._searches)

    async def wait_empty(self) -> None:
        """Returns when every stream ended."""
        await self._empty.wait()

    def find(self, request_id: RequestId) -> SequenceGroup | None:
        """The open group of a request."""
        return self._groups.get(request_id)

    def open(self, group: SequenceGroup, on_abandoned: Callable[[], None]) -> RequestStream:
        """The stream of a new group."""
        stream = RequestStream(on_abandoned)
        begin_text = self._text_beginner(group.request)
        if group.search is not None:
            self._searches[group.group_id] = SearchOutput(group, begin_text, stream)
        else:
            for sequence in group.sequences:
                self._outputs[sequence.sequence_id] = SequenceOutput(group, sequence, begin_text(), stream)
        self._groups[group.request.request_id] = group
        self._empty.clear()
        return stream

    def _text_beginner(self, request: Request) -> Callable[[], Detokenizer]:
        return partial(
            Detokenizer,
            partial(self._decode, skip_special_tokens=request.skip_special_tokens),
            request.prompt_token_ids,
            completes_prompt=ends_within_character(request.prompt_token_ids, self._token_bytes),
        )

    def deliver(self, events: Events) -> list[tuple[SequenceId, FinishReason]]:
        """Hands out what a step added; returns the sequences that ended, those at a stop string included."""
        ends: dict[SequenceId, FinishReason] = {}
        tops = events.tops or ((),) * len(events.sequence_ids)
        columns = (events.sequence_ids, events.token_ids, events.logprobs, tops, events.finish_reasons)
        for sequence_id, token_id, logprob, top, reason in zip(*columns, strict=True):
            output = self._outputs.get(sequence_id)
            if output is None:  # its request failed at another choice of this step
                continue
            try:
                end = output.push(token_id, logprob, top, reason)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is this request's)
                self._fail_at_text(output.group, error)
                ends |= {sibling.sequence_id: FinishReason.ERROR for sibling in output.group.sequences}
                continue
            if end is not None:
                ends[sequence_id] = end
                self._remove(sequence_id)
        for search in [self._searches[group_id] for group_id in events.ended_searches if group_id in self._searches]:
            self._tell(search.group)
        return list(ends.items())

    def _tell(self, group: SequenceGroup) -> None:
        """Hands out what a search has found."""
        try:
            self.finish(group, FinishReason.STOP)
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this request's)
            self._fail_at_text(group, error)

    def _fail_at_text(self, group: SequenceGroup, error: Exception) -> None:
        logger.error("the text of group %d cannot be made", group.group_id, exc_info=error)
        self.fail(group, RequestFailed(f"the output text cannot be made: {error}"))

    def finish(self, group: SequenceGroup, reason: FinishReason) -> None:
        """Ends a group's open sequences, or its search, for ``reason``."""
        if (search := self._searches.get(group.group_id)) is not None:
            search.finish(reason)
            search.stream.end()
            self.drop(group)
        for sequence in group.sequences:
            if (output := self._outputs.get(sequence.sequence_id)) is not None:
                output.finish(reason)
                self._remove(sequence.sequence_id)

    def fail(self, group: SequenceGroup, error: SchedulerError) -> None:
        """Ends a group's stream with an error."""
        if (search := self._searches.get(group.group_id)) is not None:
            search.stream.end(error)
        for sequence in group.sequences:
            if (output := self._outputs.get(sequence.sequence_id)) is not None:
                output.stream.end(error)
        self.drop(group)

    def fail_all(self, error: SchedulerError) -> None:
        """Ends every stream with an error."""
        outputs, searches = self._outputs.values(), self._searches.values()
        for stream in [output.stream for output in outputs] + [search.stream for search in searches]:
            stream.end(error)
        self._outputs.clear()
        self._searches.clear()
        self._groups.clear()
        self._empty.set()

    def drop(self, group: SequenceGroup) -> None:
        """Forgets a group that nobody reads any more."""
        self._searches.pop(group.group_id, None)
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
