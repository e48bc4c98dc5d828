"""Reads a request's body: bounded, and JSON in the strict sense."""

import json
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from scheduler.api.errors import ApiError, invalid
from scheduler.api.validation import StrictModel, as_api_error

Body = TypeVar("Body", bound=StrictModel)


async def read_json_object(request: Request, max_bytes: int) -> dict[str, Any]:
    """The body as a JSON object. Raises ``ApiError`` 413, 415 or 400; reads at most ``max_bytes``."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type is {content_type!r}, but must be 'application/json'",
            code="unsupported_media_type",
        )
    return _parse(await _read(request, max_bytes))


async def read_body(request: Request, model: type[Body], max_bytes: int) -> Body:
    """The body as a ``model``. Raises ``ApiError``."""
    return parse_body(await read_json_object(request, max_bytes), model)


def parse_body(fields: dict[str, Any], model: type[Body]) -> Body:
    """The fields as a ``model``; null means the same as an absent field. Raises ``ApiError`` that names the field."""
    try:
        return model.model_validate({name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        raise as_api_error(error.errors(include_url=False)[0]) from None


async def _read(request: Request, max_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(announced, max_bytes)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise _too_large(f"more than {max_bytes}", max_bytes)
    except ClientDisconnect:  # nobody reads this answer
        raise invalid(f"the connection ended after {len(body)} bytes of the body", code="incomplete_body") from None
    return bytes(body)


def _too_large(size: str, max_bytes: int) -> ApiError:
    return ApiError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has {size} bytes, but the limit is {max_bytes}",
        code="body_too_large",
    )


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise invalid(f"the body is not UTF-8: {error.reason} at byte {error.start}", code="invalid_json") from None
    except json.JSONDecodeError as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise invalid("the body is JSON that is nested too deeply", code="invalid_json") from None
    except ValueError as error:  # an integer of thousands of digits
        raise invalid(f"the body has an unusable number: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise invalid(f"the body must be a JSON object, not {type(value).__name__}", code="invalid_json")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise invalid(f"{name} is not JSON; numbers must be finite", code="invalid_json")
