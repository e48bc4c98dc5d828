"""`POST /v1/completions`, whole or streamed."""

import json
import time
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response
from starlette.types import Receive, Scope, Send

from scheduler.api import sse
from scheduler.api.body import read_json_object
from scheduler.api.calls import CompletionCall, check_call, completion_call
from scheduler.api.disconnect import work_unless_disconnected
from scheduler.api.errors import ApiError, as_api_error, internal_error
from scheduler.api.generation import generate_all
from scheduler.api.models import ServedModel
from scheduler.api.results import Choices, Usage, envelope
from scheduler.api.schemas import CompletionRequest, parse_completion_request
from scheduler.errors import SchedulerError
from scheduler.ports import Generator, Tokenizer


@dataclass(frozen=True, slots=True)
class CompletionService:
    """What completions are made with."""

    generator: Generator
    tokenizer: Tokenizer
    model: ServedModel
    max_body_bytes: int

    async def call(self, request: Request) -> CompletionCall:
        """Reads, validates, tokenizes and checks. Raises ``ApiError`` or ``SchedulerError``; accepts nothing yet."""
        body = parse_completion_request(await read_json_object(request, self.max_body_bytes))
        self.model.require(body.model)
        call = await completion_call(body, self.tokenizer)
        check_call(call, self.generator)
        return call

    async def answer_whole(self, call: CompletionCall, send: Send) -> None:
        """Sends one JSON body when every prompt is complete."""
        created = int(time.time())
        usage = Usage(call.num_prompt_tokens)
        choices = Choices(call)
        async with aclosing(generate_all(self.generator, call.requests)) as deltas:
            async for index, delta in deltas:
                choices.add(index, delta)
                usage.add(index, delta)
        answer = envelope(call, self.model, created)
        answer |= {"choices": choices.json(), "usage": usage.json()}
        body = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
        length = (b"content-length", str(len(body)).encode())
        await _start(send, call, [(b"content-type", b"application/json"), length])
        await send({"type": "http.response.body", "body": body})

    async def answer_stream(self, call: CompletionCall, send: Send) -> None:
        """Sends events as tokens come. The headers wait for the first token, so that a refusal is a plain error."""
        encoder = sse.ChunkEncoder(envelope(call, self.model, int(time.time())), include_usage=call.include_usage)
        usage = Usage(call.num_prompt_tokens)
        started = False
        try:
            async with aclosing(generate_all(self.generator, call.requests)) as deltas:
                async for index, delta in deltas:
                    if not started:
                        await _start(send, call, sse.HEADERS)
                        started = True
                    usage.add(index, delta)
                    if delta.text or delta.finish_reason is not None:
                        choice_index = index * call.num_returned + delta.choice_index
                        await _send_part(send, encoder.chunk(choice_index, delta))
            if call.include_usage:
                await _send_part(send, encoder.usage(usage.json()))
        except Exception as error:
            if not started:
                raise
            await _send_part(send, sse.error_event(_told(error)))
        await send({"type": "http.response.body", "body": sse.DONE})


def _told(error: Exception) -> ApiError:
    return as_api_error(error) if isinstance(error, SchedulerError) else internal_error(error)


async def _start(send: Send, call: CompletionCall, headers: list[tuple[bytes, bytes]]) -> None:
    request_id = (b"x-request-id", call.completion_id.encode())
    await send({"type": "http.response.start", "status": 200, "headers": [*headers, request_id]})


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


def completions_router(service: CompletionService) -> APIRouter:
    """The route, described in the OpenAPI document by the model that validates it."""
    router = APIRouter()
    schema = {"application/json": {"schema": CompletionRequest.model_json_schema()}}

    @router.post("/v1/completions", openapi_extra={"requestBody": {"content": schema, "required": True}})
    async def create_completion(request: Request) -> Response:
        call = await service.call(request)
        answer = service.answer_stream if call.stream else service.answer_whole
        return WatchedResponse(partial(answer, call))

    return router
