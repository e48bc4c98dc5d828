"""Sends what a call produces, whole or as a stream of events, in whatever form it is told."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scheduler.api import sse
from scheduler.api.calls import CompletionCall
from scheduler.api.disconnect import work_unless_disconnected
from scheduler.api.errors import ApiError, as_api_error, internal_error
from scheduler.api.generation import generate_all
from scheduler.api.results import Usage
from scheduler.core.request import OutputDelta
from scheduler.errors import SchedulerError
from scheduler.ports import Generator


class Answer(Protocol):
    """A whole answer in the making."""

    def add(self, prompt_index: int, delta: OutputDelta) -> None: ...

    def json(self) -> Mapping[str, Any]:
        """All but the usage."""


class Chunks(Protocol):
    """The events of a stream."""

    def of(self, prompt_index: int, delta: OutputDelta) -> Iterable[bytes]:
        """What a delta adds; may be nothing."""

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The last chunk, if usage is asked for."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Generates what a call asks for and sends it."""

    generator: Generator
    call: CompletionCall

    async def send_whole(self, answer: Answer, send: Send) -> None:
        """Sends one JSON body when every prompt is complete."""
        usage = Usage(self.call.num_prompt_tokens)
        async with aclosing(generate_all(self.generator, self.call.requests)) as deltas:
            async for index, delta in deltas:
                answer.add(index, delta)
                usage.add(index, delta)
        told = {**answer.json(), "usage": usage.json()}
        body = sse.encode(told).encode()
        length = (b"content-length", str(len(body)).encode())
        await self._start(send, [(b"content-type", b"application/json"), length])
        await send({"type": "http.response.body", "body": body})

    async def send_stream(self, chunks: Chunks, send: Send) -> None:
        """Sends events as tokens come. The headers wait for the first token, so that a refusal is a plain error."""
        usage = Usage(self.call.num_prompt_tokens)
        started = False
        try:
            async with aclosing(generate_all(self.generator, self.call.requests)) as deltas:
                async for index, delta in deltas:
                    if not started:
                        await self._start(send, sse.HEADERS)
                        started = True
                    usage.add(index, delta)
                    for part in chunks.of(index, delta):
                        await _send_part(send, part)
            if self.call.include_usage:
                await _send_part(send, chunks.usage(usage.json()))
        except Exception as error:
            if not started:
                raise
            await _send_part(send, sse.error_event(_told(error)))
        await send({"type": "http.response.body", "body": sse.DONE})

    async def _start(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        request_id = (b"x-request-id", self.call.completion_id.encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, request_id]})


def _told(error: Exception) -> ApiError:
    return as_api_error(error) if isinstance(error, SchedulerError) else internal_error(error)


async def _send_part(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})


class WatchedResponse(Response):
    """An answer that is made while it is sent, and dropped when the client goes away."""

    def __init__(self, answer: Callable[[Send], Coroutine[None, None, None]]) -> None:
        super().__init__()
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Makes and sends the answer, unless ``receive`` says that nobody waits for it."""
        await work_unless_disconnected(self._answer(send), receive)
