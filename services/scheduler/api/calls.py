"""From a validated body to requests for the engine."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.api.prompts import Prompt, num_chars
from scheduler.api.schemas import CompletionRequest
from scheduler.core.request import Request, RequestId, SamplingParams, StopConditions
from scheduler.errors import RequestRefused
from scheduler.ports import Generator, Tokenizer

MAX_CHARS_ON_LOOP = 2048
"""Longer texts are tokenized in a thread (about 1 ms on the event loop)."""


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """One HTTP call: a request per prompt, in the order of the prompts."""

    completion_id: str
    requests: tuple[Request, ...]
    num_returned: int  # choices per prompt
    stream: bool
    include_usage: bool

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(len(request.prompt_token_ids) for request in self.requests)


async def completion_call(body: CompletionRequest, tokenizer: Tokenizer) -> CompletionCall:
    """Tokenizes the prompts and names the requests."""
    completion_id = f"cmpl-{secrets.token_hex(12)}"
    stop = StopConditions(body.max_tokens, body.stop, tokenizer.eos_token_ids)
    prompts = await _tokenized(body.prompt, tokenizer)
    return CompletionCall(
        completion_id,
        tuple(
            Request(
                request_id=RequestId(f"{completion_id}-{index}"),
                prompt_token_ids=token_ids,
                stop=stop,
                sampling=_sampling(body),
                num_choices=body.best_of or body.n,
                cache_salt=body.cache_salt or "",
            )
            for index, token_ids in enumerate(prompts)
        ),
        num_returned=body.n,
        stream=body.stream,
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
    )


def check_call(call: CompletionCall, generator: Generator) -> None:
    """Raises for the first prompt that is refused, before any of them is accepted."""
    for index, request in enumerate(call.requests):
        try:
            generator.check(request)
        except RequestRefused as error:
            if len(call.requests) == 1:
                raise
            message = f"{error.message} (prompt {index} of {len(call.requests)})"
            raise RequestRefused(message, param=error.param, code=error.code) from None


def _sampling(body: CompletionRequest) -> SamplingParams:
    seed = secrets.randbits(64) if body.seed is None else body.seed % 2**64
    return SamplingParams(body.temperature, body.top_p, max(body.top_k, 0), seed)


async def _tokenized(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    if num_chars(prompts) > MAX_CHARS_ON_LOOP:
        return await asyncio.to_thread(_tokenize, prompts, tokenizer)
    return _tokenize(prompts, tokenizer)


def _tokenize(prompts: Sequence[Prompt], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    return [tuple(tokenizer.encode(prompt)) if isinstance(prompt, str) else prompt for prompt in prompts]
