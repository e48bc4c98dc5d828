"""The fields that completions and chat share, validated strictly.

Ids of tokens are held against the vocabulary later, by ``core.limits``, which knows it.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from scheduler.api.errors import invalid
from scheduler.api.validation import FIELD_ERROR, StrictModel, as_tuple, not_supported_beyond

MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_STOP_TOKENS = 128
MAX_CHOICES = 128
MAX_SALT_CHARS = 256
MAX_TOKENS = 2**31 - 1
MAX_TOKEN_ID = 2**31 - 1
MAX_TOP_K = 2**31 - 1
MAX_LOGPROBS = 20
MAX_BIAS = 100
MAX_BIASES = 1024
MAX_ALLOWED_TOKENS = 65_536
MAX_BAD_WORDS = 128
MAX_BAD_WORD_CHARS = 256
MAX_PENALTY = 2
MAX_REQUEST_ID_CHARS = 128
MAX_USER_CHARS = 512
MAX_PRIORITY = 2**31 - 1
REQUEST_ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]*$"

TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


def biases_of(value: object) -> tuple[tuple[int, float], ...]:
    """Pairs of token id and bias from an object whose keys are ids as strings. Raises ``PydanticCustomError``."""
    if not isinstance(value, dict):
        raise _error("must be an object of token ids and biases")
    if len(value) > MAX_BIASES:
        raise _error("has {count} entries, but the limit is {limit}", count=len(value), limit=MAX_BIASES)
    biases = {_id_of(key): _bias_of(key, bias) for key, bias in value.items()}
    if len(biases) < len(value):
        raise _error("names a token id more than once")
    return tuple(biases.items())


def _id_of(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= len(str(MAX_TOKEN_ID)) and int(key) <= MAX_TOKEN_ID):
        raise _error(
            "has the key {key}, but keys are token ids from 0 to {limit}", key=repr(key[:80]), limit=MAX_TOKEN_ID
        )
    return int(key)


def _bias_of(key: str, bias: object) -> float:
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not -MAX_BIAS <= bias <= MAX_BIAS:
        raise _error(
            "has {bias} for token {key}, but biases are numbers from -{limit} to {limit}",
            bias=repr(bias)[:80],
            key=key,
            limit=MAX_BIAS,
        )
    return float(bias)


def _error(message: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError(FIELD_ERROR, message, context)


_BIAS = {"type": "number", "minimum": -MAX_BIAS, "maximum": MAX_BIAS}
BIAS_SCHEMA = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]{1,10}$"},
    "additionalProperties": _BIAS,
    "maxProperties": MAX_BIASES,
}


class StreamOptions(StrictModel):
    """What a stream carries besides text."""

    include_usage: bool = False
    include_obfuscation: Annotated[Any, not_supported_beyond(False)] = False


class GenerationFields(StrictModel):
    """How outputs are generated and told. Null means the same as an absent field: the default."""

    model: str | None = None
    n: int = Field(default=1, ge=1, le=MAX_CHOICES, description="choices to return for each prompt")
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = Field(default=None, max_length=MAX_USER_CHARS, description="accepted and not used")
    priority: int = Field(
        default=0,
        ge=-MAX_PRIORITY,
        le=MAX_PRIORITY,
        description="smaller is more urgent; other than 0 only where the server runs with --scheduling-policy priority",
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SALT_CHARS,
        description="shares cached prefixes only with the same salt",
    )
    request_id: str | None = Field(
        default=None,
        max_length=MAX_REQUEST_ID_CHARS,
        pattern=REQUEST_ID,
        description="id of the answer; must not be in use",
    )

    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1, le=MAX_TOP_K, description="0 and -1 mean all tokens")
    min_p: float = Field(
        default=0.0, ge=0, le=1, description="keeps tokens at least so probable relative to the most probable one"
    )
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**64)
    presence_penalty: float = Field(default=0.0, ge=-MAX_PENALTY, le=MAX_PENALTY)
    frequency_penalty: float = Field(default=0.0, ge=-MAX_PENALTY, le=MAX_PENALTY)
    repetition_penalty: float = Field(
        default=1.0, ge=0.01, le=MAX_PENALTY, description="above 1 repels what stands in prompt or output"
    )
    logit_bias: Annotated[tuple[tuple[int, float], ...], PlainValidator(biases_of), WithJsonSchema(BIAS_SCHEMA)] = ()
    allowed_token_ids: Annotated[
        tuple[TokenId, ...] | None, BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_ALLOWED_TOKENS)
    ] = None
    bad_words: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD_CHARS)], ...],
        BeforeValidator(as_tuple),
        Field(max_length=MAX_BAD_WORDS),
    ] = ()

    stop: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)], ...],
        BeforeValidator(as_tuple),
        Field(max_length=MAX_STOP_STRINGS),
    ] = ()
    stop_token_ids: Annotated[tuple[TokenId, ...], BeforeValidator(as_tuple), Field(max_length=MAX_STOP_TOKENS)] = ()
    include_stop_str_in_output: bool = False
    min_tokens: int = Field(default=0, ge=0, le=MAX_TOKENS)
    ignore_eos: bool = False

    prompt_logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="most probable tokens told with each prompt token"
    )
    return_token_ids: bool = False
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = Field(
        default=None, ge=1, le=MAX_TOKENS, description="keeps so many tokens at the prompt's end"
    )

    def check(self, max_tokens: int) -> None:
        """Raises ``ApiError`` 400 for fields that contradict each other."""
        if self.stream_options is not None and not self.stream:
            raise invalid("stream_options is only accepted with stream: true", param="stream_options")
        if self.min_tokens > max_tokens:
            raise invalid(
                f"min_tokens is {self.min_tokens}, but must be at most max_tokens, which is {max_tokens}",
                param="min_tokens",
            )
