"""Every failure as OpenAI's error body."""

import json
import logging
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import NoReturn

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from scheduler.errors import (
    Conflict,
    NotFound,
    NotReady,
    QueueFull,
    QueueTimeout,
    RequestFailed,
    RequestRefused,
    SchedulerError,
)

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """An answer that is an error. ``param`` names the field at fault, ``code`` is for programs."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = headers

    def body(self) -> str:
        """JSON in ASCII, so that no text in the message can break the encoding."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error})


def invalid(message: str, *, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """400: the message names the field, its value and the limit."""
    return ApiError(HTTPStatus.BAD_REQUEST, message, param=param, code=code)


def as_api_error(error: SchedulerError) -> ApiError:  # noqa: PLR0911 - one per error
    """What the client is told of a scheduler's error."""
    match error:
        case RequestRefused():
            return invalid(error.message, param=error.param, code=error.code or "invalid_value")
        case NotFound():
            return ApiError(HTTPStatus.NOT_FOUND, str(error), code="not_found")
        case Conflict():
            return ApiError(HTTPStatus.CONFLICT, str(error), code=error.code)
        case QueueFull():
            return ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                str(error),
                kind="rate_limit_error",
                code="queue_full",
                headers={"Retry-After": str(max(1, math.ceil(error.retry_after_s)))},
            )
        case QueueTimeout():
            return ApiError(HTTPStatus.GATEWAY_TIMEOUT, str(error), kind=SERVER_ERROR, code="queue_timeout")
        case NotReady():
            return ApiError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), kind=SERVER_ERROR, code="not_ready")
        case RequestFailed():
            return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), kind=SERVER_ERROR, code="request_failed")
        case _:
            return internal_error(error)


def internal_error(error: Exception) -> ApiError:
    """500 for a defect: logged in full, told in general."""
    logger.error("a request met a defect", exc_info=error)
    return ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error", kind=SERVER_ERROR, code="internal_error")


def error_response(error: ApiError) -> Response:
    """The error as a whole answer."""
    return Response(error.body(), error.status, error.headers, media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    """Makes every exception that a route or the router raises an answer in OpenAI's form."""
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(SchedulerError, _answer_scheduler_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_exception)
    app.add_exception_handler(Exception, _answer_defect)


async def _answer_api_error(_request: Request, error: Exception) -> Response:
    return error_response(error) if isinstance(error, ApiError) else _wrong_handler(error)


async def _answer_scheduler_error(_request: Request, error: Exception) -> Response:
    return error_response(as_api_error(error)) if isinstance(error, SchedulerError) else _wrong_handler(error)


async def _answer_validation_error(_request: Request, error: Exception) -> Response:
    """A query parameter or part of the path is at fault; bodies are validated by their own routes."""
    if not isinstance(error, RequestValidationError):
        _wrong_handler(error)
    details = error.errors()[0]
    param = str(details["loc"][-1])
    return error_response(invalid(f"{param} is {details.get('input')!r}: {details['msg']}", param=param))


async def _answer_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        _wrong_handler(error)
    status = HTTPStatus(error.status_code)
    messages = {
        HTTPStatus.NOT_FOUND: f"{request.method} {request.url.path}: there is no such path",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} is not allowed for {request.url.path}",
    }
    message = messages.get(status, str(error.detail))
    return error_response(ApiError(status, message, code=status.name.lower(), headers=error.headers))


async def _answer_defect(_request: Request, error: Exception) -> Response:
    return error_response(internal_error(error))


def _wrong_handler(error: Exception) -> NoReturn:
    raise TypeError("a handler was registered for another class") from error
