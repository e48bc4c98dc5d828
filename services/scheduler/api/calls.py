"""From a validated body to requests for the engine."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.api.beam_fields import beams_of
from scheduler.api.parameters import sampling_params, seed_of, stop_conditions
from scheduler.api.prompts import num_chars
from scheduler.api.schemas import CompletionRequest
from scheduler.core.constraint import TokenConstraint
from scheduler.core.detokenizer import REPLACEMENT, ends_within_character
from scheduler.core.request import Request, RequestId
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
    echo: bool = False  # whether each output comes after its prompt
    prompt_texts: tuple[str, ...] = ()  # per prompt; empty where nobody needs them
    num_logprobs: int | None = None  # most probable tokens told with each token; None: nothing is told
    num_prompt_logprobs: int | None = None  # likewise for prompt tokens
    returns_token_ids: bool = False

    @property
    def tells_more_than_text(self) -> bool:
        """Whether anything but the output's text is asked for."""
        asked = (self.num_logprobs, self.num_prompt_logprobs)
        return self.echo or self.returns_token_ids or any(num is not None for num in asked)

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(len(request.prompt_token_ids) for request in self.requests)


async def completion_call(
    body: CompletionRequest, tokenizer: Tokenizer, constraint: TokenConstraint | None = None
) -> CompletionCall:
    """Tokenizes the prompts and names the requests."""
    completion_id = body.request_id or f"cmpl-{secrets.token_hex(12)}"
    prompts = await _tokenized(body, tokenizer)
    stop = stop_conditions(body, body.max_tokens, tokenizer)
    beams = beams_of(body, body.best_of)
    sampling = sampling_params(body, tokenizer, body.logprobs or 0)
    if beams is not None:
        sampling = replace(sampling, temperature=0.0)
    return CompletionCall(
        completion_id,
        tuple(
            Request(
                request_id=RequestId(f"{completion_id}-{index}"),
                prompt_token_ids=token_ids,
                stop=stop,
                sampling=replace(sampling, seed=seed_of(body)),
                num_choices=body.n if beams is not None else body.best_of or body.n,
                cache_salt=body.cache_salt or "",
                priority=body.priority,
                constraint=constraint,
                num_prompt_logprobs=_num_prompt_logprobs(body),
                skip_special_tokens=body.skip_special_tokens,
                beams=beams,
            )
            for index, token_ids in enumerate(prompts)
        ),
        num_returned=body.n,
        stream=body.stream,
        include_usage=body.stream_options is not None and body.stream_options.include_usage,
        echo=body.echo,
        prompt_texts=_prompt_texts(body, prompts, tokenizer),
        num_logprobs=body.logprobs,
        num_prompt_logprobs=body.prompt_logprobs,
        returns_token_ids=body.return_token_ids,
    )


def check_call(call: CompletionCall, generator: Generator) -> None:
    """Raises for the first prompt that is refused, before any of them is accepted."""
    generator.check_together(call.requests)
    for index, request in enumerate(call.requests):
        try:
            generator.check(request)
        except RequestRefused as error:
            if len(call.requests) == 1:
                raise
            message = f"{error.message} (prompt {index} of {len(call.requests)})"
            raise RequestRefused(message, param=error.param, code=error.code) from None


def _num_prompt_logprobs(body: CompletionRequest) -> int | None:
    asked = [body.prompt_logprobs, body.logprobs if body.echo else None]
    return max((num for num in asked if num is not None), default=None)


def _prompt_texts(
    body: CompletionRequest, token_ids: Sequence[tuple[int, ...]], tokenizer: Tokenizer
) -> tuple[str, ...]:
    """A text prompt as it came, unless tokens were cut off; others decoded, less a character that they break off."""
    if not body.echo and body.logprobs is None:
        return ()
    is_whole = body.truncate_prompt_tokens is None
    return tuple(
        prompt
        if isinstance(prompt, str) and is_whole
        else _decoded(ids, tokenizer, skip_special_tokens=body.skip_special_tokens)
        for prompt, ids in zip(body.prompt, token_ids, strict=True)
    )


def _decoded(token_ids: Sequence[int], tokenizer: Tokenizer, *, skip_special_tokens: bool) -> str:
    text = tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)
    return text.rstrip(REPLACEMENT) if ends_within_character(token_ids, tokenizer.token_bytes) else text


async def _tokenized(body: CompletionRequest, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    if num_chars(body.prompt) > MAX_CHARS_ON_LOOP:
        return await asyncio.to_thread(_tokenize, body, tokenizer)
    return _tokenize(body, tokenizer)


def _tokenize(body: CompletionRequest, tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    return [
        truncated(
            tuple(tokenizer.encode(prompt, add_special_tokens=body.add_special_tokens))
            if isinstance(prompt, str)
            else prompt,
            body.truncate_prompt_tokens,
        )
        for prompt in body.prompt
    ]


def truncated(token_ids: tuple[int, ...], num_tokens: int | None) -> tuple[int, ...]:
    """The last ``num_tokens`` of a prompt; all for ``None``."""
    return token_ids if num_tokens is None else token_ids[-num_tokens:]
