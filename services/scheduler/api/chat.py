"""`POST /v1/chat/completions`, whole or streamed."""

import secrets
import time
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response

from scheduler.api.answering import Sender, WatchedResponse
from scheduler.api.answers import ChatCompletionAnswer, ChatCompletionChunk
from scheduler.api.body import read_json_object
from scheduler.api.calls import CompletionCall, check_call, truncated
from scheduler.api.chat_results import ChatAnswer, ChatChunks
from scheduler.api.chat_schemas import ChatCompletionRequest, parse_chat_request
from scheduler.api.completions import CompletionService
from scheduler.api.messages import chat_prompt
from scheduler.api.openapi import answers_of, body_of
from scheduler.api.parameters import sampling_params, stop_conditions
from scheduler.api.results import envelope
from scheduler.api.structured_output import constraint_of
from scheduler.core import request as core
from scheduler.ports import ChatTemplate

EXAMPLES = {
    "question": {"messages": [{"role": "user", "content": "What is the capital of France?"}], "max_tokens": 32},
    "schema": {
        "messages": [{"role": "user", "content": "Name a city and its country."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "city",
                "schema": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
                    "required": ["city", "country"],
                    "additionalProperties": False,
                },
            },
        },
    },
}


@dataclass(frozen=True, slots=True)
class ChatService:
    """What chats are made with: completions of prompts that the model's template writes."""

    completions: CompletionService
    template: ChatTemplate | None

    async def call(self, request: Request) -> CompletionCall:
        """Reads, validates, renders and checks. Raises ``ApiError`` or ``SchedulerError``; accepts nothing yet."""
        completions = self.completions
        body = parse_chat_request(await read_json_object(request, completions.max_body_bytes))
        completions.model.require(body.model)
        prompt = await chat_prompt(body, self.template, completions.tokenizer)
        call = await self._call(body, truncated(prompt, body.truncate_prompt_tokens))
        check_call(call, completions.generator)
        return call

    async def _call(self, body: ChatCompletionRequest, token_ids: tuple[int, ...]) -> CompletionCall:
        tokenizer = self.completions.tokenizer
        max_tokens = self._max_tokens(body, len(token_ids))
        body.check(max_tokens)
        call_id = body.request_id or f"chatcmpl-{secrets.token_hex(12)}"
        wanted = core.Request(
            request_id=core.RequestId(f"{call_id}-0"),
            prompt_token_ids=token_ids,
            stop=stop_conditions(body, max_tokens, tokenizer),
            sampling=sampling_params(body, tokenizer, body.top_logprobs or 0),
            num_choices=body.n,
            cache_salt=body.cache_salt or "",
            priority=body.priority,
            num_prompt_logprobs=body.prompt_logprobs,
            skip_special_tokens=body.skip_special_tokens,
            constraint=await constraint_of(body, self.completions.grammars),
        )
        return CompletionCall(
            call_id,
            (wanted,),
            num_returned=body.n,
            stream=body.stream,
            include_usage=body.stream_options is not None and body.stream_options.include_usage,
            num_prompt_logprobs=body.prompt_logprobs,
            num_logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            returns_token_ids=body.return_token_ids,
        )

    def _max_tokens(self, body: ChatCompletionRequest, num_prompt_tokens: int) -> int:
        for given in (body.max_completion_tokens, body.max_tokens):
            if given is not None:
                return given
        return self.completions.generator.max_output_tokens(num_prompt_tokens, body.n)

    def response(self, call: CompletionCall) -> Response:
        """The answer, which is made while it is sent."""
        sender = Sender(self.completions.generator, call)
        kind = "chat.completion.chunk" if call.stream else "chat.completion"
        head = envelope(kind, call, self.completions.model, int(time.time()))
        if call.stream:
            return WatchedResponse(partial(sender.send_stream, ChatChunks(call, head, self.completions.tokenizer)))
        return WatchedResponse(partial(sender.send_whole, ChatAnswer(call, head, self.completions.tokenizer)))


def chat_router(service: ChatService) -> APIRouter:
    """The route, described in the OpenAPI document by the models that validate it."""
    router = APIRouter(tags=["completions"])

    @router.post(
        "/v1/chat/completions",
        openapi_extra=body_of(ChatCompletionRequest, examples=EXAMPLES),
        responses=answers_of(ChatCompletionAnswer, ChatCompletionChunk),
    )
    async def create_chat_completion(request: Request) -> Response:
        """Answers a conversation, written down by the model's own template."""
        return service.response(await service.call(request))

    return router
