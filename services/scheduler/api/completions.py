"""`POST /v1/completions`, whole or streamed."""

import time
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response
from starlette.types import Send

from scheduler.api.answering import Sender, WatchedResponse
from scheduler.api.answers import CompletionAnswer, CompletionChunk
from scheduler.api.body import read_json_object
from scheduler.api.calls import CompletionCall, check_call, completion_call
from scheduler.api.models import ServedModel
from scheduler.api.openapi import answers_of, body_of
from scheduler.api.results import Choices, Chunks, envelope
from scheduler.api.schemas import CompletionRequest, parse_completion_request
from scheduler.api.structured_output import constraint_of
from scheduler.ports import Generator, GrammarCompiler, Tokenizer

EXAMPLES = {
    "text": {"prompt": "The capital of France is", "max_tokens": 16, "temperature": 0},
    "several": {"prompt": ["One, two,", "Red, green,"], "n": 2, "seed": 7, "stream": True},
}


@dataclass(frozen=True, slots=True)
class CompletionService:
    """What completions are made with."""

    generator: Generator
    tokenizer: Tokenizer
    model: ServedModel
    max_body_bytes: int
    grammars: GrammarCompiler | None = None  # None: outputs cannot be held to a grammar

    async def call(self, request: Request) -> CompletionCall:
        """Reads, validates, tokenizes and checks. Raises ``ApiError`` or ``SchedulerError``; accepts nothing yet."""
        body = parse_completion_request(await read_json_object(request, self.max_body_bytes))
        self.model.require(body.model)
        call = await completion_call(body, self.tokenizer, await constraint_of(body, self.grammars))
        check_call(call, self.generator)
        return call

    async def answer(self, call: CompletionCall, send: Send) -> None:
        """Sends one JSON body when every prompt is complete, or events as tokens come."""
        sender = Sender(self.generator, call)
        head = envelope("text_completion", call, self.model, int(time.time()))
        if call.stream:
            await sender.send_stream(Chunks(call, head, self.tokenizer), send)
        else:
            await sender.send_whole(Choices(call, head, self.tokenizer), send)


def completions_router(service: CompletionService) -> APIRouter:
    """The route, described in the OpenAPI document by the model that validates it."""
    router = APIRouter(tags=["completions"])

    @router.post(
        "/v1/completions",
        openapi_extra=body_of(CompletionRequest, examples=EXAMPLES),
        responses=answers_of(CompletionAnswer, CompletionChunk),
    )
    async def create_completion(request: Request) -> Response:
        """Continues prompts."""
        call = await service.call(request)
        return WatchedResponse(partial(service.answer, call))

    return router
