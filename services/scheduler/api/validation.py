"""Strict validation, with answers that name the field, its value and the limit."""

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic_core import ErrorDetails, PydanticCustomError

from scheduler.api.errors import ApiError, invalid
from scheduler.api.prompts import MAX_SHOWN_CHARS

CODES = {"extra_forbidden": "unknown_field", "missing": "missing_field", "not_supported": "not_supported"}
FIELD_ERROR = "field"
"""Type of the validation errors whose message needs no value before it."""


class StrictModel(BaseModel):
    """No conversions, no unknown fields, no change afterwards."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def not_supported_beyond(*accepted: object) -> PlainValidator:
    """Accepts the values that ask for nothing."""

    def check(value: object) -> object:
        if any(type(value) is type(other) and value == other for other in accepted):
            return value
        shown = " or ".join(map(repr, accepted)) or "null"
        raise PydanticCustomError("not_supported", "not supported, accepted is {accepted}", {"accepted": shown})

    return PlainValidator(check)


def as_tuple(value: object) -> object:
    """A string as a tuple of one, a list as a tuple."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def whole_characters(value: str) -> str:
    """The text, which tokenizers take only without halves of surrogate pairs. Raises ``PydanticCustomError``."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError(
            FIELD_ERROR, "has half a surrogate pair at character {index}", {"index": error.start}
        ) from None
    return value


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
        case kind if kind == FIELD_ERROR:
            message = f"{param} {details['msg']}"
        case _:
            shown = repr(details["input"])
            shown = shown if len(shown) <= MAX_SHOWN_CHARS else shown[:MAX_SHOWN_CHARS] + "…"
            message = f"{param} is {shown}: {_limit(details['msg'])}"
    return invalid(message, param=param, code=code)


def _limit(message: str) -> str:
    message = message.removeprefix("Input ")
    return message[0].lower() + message[1:]
