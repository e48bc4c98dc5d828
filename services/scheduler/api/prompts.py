"""The forms of `prompt`: a text, token ids, or a list of either."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import PydanticCustomError

Prompt = str | tuple[int, ...]

MAX_PROMPTS = 1024
MAX_TOKEN_ID = 2**31 - 1
MAX_SHOWN_CHARS = 80
FORMS = "a string, a list of strings, a list of token ids or a list of lists of token ids"

_IDS_SCHEMA = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_PROMPTS},
        _IDS_SCHEMA,
        {"type": "array", "items": _IDS_SCHEMA, "minItems": 1, "maxItems": MAX_PROMPTS},
    ]
}


def prompts_of(value: object) -> tuple[Prompt, ...]:
    """One entry per prompt. Raises ``PydanticCustomError`` for another form, or for too many prompts."""
    match value:
        case str():
            return (_text(value),)
        case [int(), *_]:
            return (_token_ids(value),)
        case [str(), *_] | [list(), *_]:
            if len(value) > MAX_PROMPTS:
                raise _error("{count} prompts, but the limit is {limit}", count=len(value), limit=MAX_PROMPTS)
            convert = _text if isinstance(value[0], str) else _token_ids
            return tuple(convert(item) for item in value)
        case []:
            raise _error("must not be an empty list")
        case _:
            raise _error("must be {forms}", forms=FORMS)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _error("must be {forms}, not a mixture of them", forms=FORMS)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _error("has half a surrogate pair at character {index}", index=error.start) from None
    return value


def _token_ids(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _error("must be {forms}, not a mixture of them", forms=FORMS)
    if not {int}.issuperset(map(type, value)):
        index = next(i for i, item in enumerate(value) if type(item) is not int)
        raise _error(
            "token ids must be integers, but at position {index} is {value}", index=index, value=repr(value[index])[:80]
        )
    if value and not (min(value) >= 0 and max(value) <= MAX_TOKEN_ID):
        worst = min(value) if min(value) < 0 else max(value)
        raise _error("token ids must be 0 to {limit}, but {value} is among them", limit=MAX_TOKEN_ID, value=worst)
    return tuple(value)


def _error(message: str, **context: Any) -> PydanticCustomError:  # noqa: ANN401 - values for the message
    return PydanticCustomError("prompt", message, context)


def num_chars(prompts: Sequence[Prompt]) -> int:
    """Characters that have to be tokenized."""
    return sum(len(prompt) for prompt in prompts if isinstance(prompt, str))
