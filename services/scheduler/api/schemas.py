"""The body of `POST /v1/completions`."""

from typing import Annotated, Any

from pydantic import Field, PlainValidator, WithJsonSchema

from scheduler.api.beam_fields import BeamFields, beams_of
from scheduler.api.body import parse_body
from scheduler.api.errors import invalid
from scheduler.api.fields import MAX_CHOICES, MAX_LOGPROBS, MAX_TOKENS
from scheduler.api.prompts import PROMPT_SCHEMA, Prompt, prompts_of
from scheduler.api.structured_output import StructuredFields
from scheduler.api.validation import not_supported_beyond


class CompletionRequest(BeamFields, StructuredFields):
    """Null means the same as an absent field: the default."""

    prompt: Annotated[tuple[Prompt, ...], PlainValidator(prompts_of), WithJsonSchema(PROMPT_SCHEMA)]
    max_tokens: int = Field(default=16, ge=0, le=MAX_TOKENS)
    best_of: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHOICES,
        description="choices to generate, of which the n with the highest mean token log-probability are returned; "
        "default: n; with use_beam_search: the same as beam_width",
    )
    echo: bool = Field(default=False, description="the prompt before each output")
    logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_LOGPROBS,
        description="most probable tokens told with each token, prompt tokens included with echo",
    )
    add_special_tokens: bool = Field(default=True, description="those that the tokenizer adds to a text prompt")
    suffix: Annotated[Any, not_supported_beyond("")] = Field(default="", description="no model here fills in a middle")


def parse_completion_request(body: dict[str, Any]) -> CompletionRequest:
    """Raises ``ApiError`` 400 that names the field, its value and the limit."""
    request = parse_body(body, CompletionRequest)
    request.check(request.max_tokens)
    _check_best_of(request)
    beams_of(request, request.best_of)
    return request


def _check_best_of(request: CompletionRequest) -> None:
    if request.best_of is None or request.best_of == request.n:
        return
    if request.best_of < request.n:
        raise invalid(f"best_of is {request.best_of}, but must be at least n, which is {request.n}", param="best_of")
    if request.stream:
        raise invalid(
            f"best_of is {request.best_of}, but with stream: true must be n, which is {request.n}: "
            "the best are known only at the end",
            param="best_of",
        )
