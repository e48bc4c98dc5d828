"""The body of `POST /v1/completions`, validated strictly.

OpenAI's fields that are not served yet stand here with the values that ask for nothing; every other value is refused.
"""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from scheduler.api.errors import ApiError, invalid
from scheduler.api.prompts import MAX_SHOWN_CHARS, PROMPT_SCHEMA, Prompt, prompts_of

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_CHOICES = 128
MAX_SALT_CHARS = 256
MAX_TOKENS = 2**31 - 1
MAX_TOP_K = 2**31 - 1
CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field", "not_supported": "not_supported"}


def not_supported_beyond(*accepted: object) -> PlainValidator:
    """Accepts the values that ask for nothing."""

    def check(value: object) -> object:
        if any(type(value) is type(other) and value == other for other in accepted):
            return value
        shown = " or ".join(map(repr, accepted)) or "null"
        raise PydanticCustomError("not_supported", "not supported yet, accepted is {accepted}", {"accepted": shown})

    return PlainValidator(check)


def as_tuple(value: object) -> object:
    """A string as a tuple of one, a list as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class StrictModel(BaseModel):
    """No conversions, no unknown fields, no change afterwards."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class StreamOptions(StrictModel):
    """What a stream carries besides text."""

    include_usage: bool = False
    include_obfuscation: Annotated[Any, not_supported_beyond(False)] = False


class CompletionRequest(StrictModel):
    """Null means the same as an absent field: the default."""

    prompt: Annotated[tuple[Prompt, ...], PlainValidator(prompts_of), WithJsonSchema(PROMPT_SCHEMA)]
    model: str | None = None
    max_tokens: int = Field(default=16, ge=0, le=MAX_TOKENS)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1, le=MAX_TOP_K, description="0 and -1 mean all tokens")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)], ...],
        BeforeValidator(as_tuple),
        Field(max_length=MAX_STOP_STRINGS),
    ] = ()
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: int = Field(default=1, ge=1, le=MAX_CHOICES, description="choices to return for each prompt")
    best_of: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CHOICES,
        description="choices to generate, of which the n with the highest mean token log-probability are returned; "
        "default: n",
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SALT_CHARS,
        description="cached prefixes are shared within one salt",
    )

    echo: Annotated[Any, not_supported_beyond(False)] = False
    logprobs: Annotated[Any, not_supported_beyond()] = None
    suffix: Annotated[Any, not_supported_beyond("")] = ""
    logit_bias: Annotated[Any, not_supported_beyond({})] = None
    presence_penalty: Annotated[Any, not_supported_beyond(0, 0.0)] = 0.0
    frequency_penalty: Annotated[Any, not_supported_beyond(0, 0.0)] = 0.0


def parse_completion_request(body: dict[str, Any]) -> CompletionRequest:
    """Raises ``ApiError`` 400 that names the field, its value and the limit."""
    try:
        request = CompletionRequest.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        raise as_api_error(error.errors(include_url=False)[0]) from None
    if request.stream_options is not None and not request.stream:
        raise invalid("stream_options is only accepted with stream: true", param="stream_options")
    _check_best_of(request)
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


def as_api_error(details: ErrorDetails) -> ApiError:
    """400 that names the field, its value and the limit."""
    param = ".".join(map(str, details["loc"]))
    code = CODES.get(details["type"], "invalid_value")
    match details["type"]:
        case "extra_forbidden":
            message = f"{param} is not a field of this request"
        case "missing":
            message = f"{param} is required"
        case "prompt":
            message = f"{param}: {details['msg']}"
        case _:
            shown = repr(details["input"])
            shown = shown if len(shown) <= MAX_SHOWN_CHARS else shown[:MAX_SHOWN_CHARS] + "…"
            message = f"{param} is {shown}: {_limit(details['msg'])}"
    return invalid(message, param=param, code=code)


def _limit(message: str) -> str:
    message = message.removeprefix("Input ")
    return message[0].lower() + message[1:]
