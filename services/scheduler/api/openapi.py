"""The OpenAPI document, as true as the routes: request models, answers, streams and errors.

Bodies are read by the routes themselves, for errors in OpenAI's form; so each route names its models here.
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

SCHEMAS = "#/components/schemas/"
LOCAL = "#/$defs/"
EVENT_STREAM = "text/event-stream"
METHODS = ("get", "post", "delete", "put", "patch")

DESCRIPTION = """Completions over paged KV memory, in the form of OpenAI's API.

docs/api.md lists what differs from OpenAI and vLLM. Every error has the body `ErrorAnswer`."""


class ErrorDetails(BaseModel):
    """What went wrong."""

    message: str = Field(description="Names the field, its value and the limit.")
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"
    ]
    param: str | None = Field(description="The field at fault.")
    code: str | None = Field(description="For programs.")


class ErrorAnswer(BaseModel):
    """OpenAI's error body."""

    error: ErrorDetails


ERRORS: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "A field is at fault; the message names it, its value and the limit.",
    HTTPStatus.UNAUTHORIZED: "The key is missing or wrong.",
    HTTPStatus.FORBIDDEN: "The key does not open this route.",
    HTTPStatus.NOT_FOUND: "What was asked for is not there.",
    HTTPStatus.CONFLICT: "What was asked for cannot be done now.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not `application/json`.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too much waits or was asked for; `Retry-After` says when to try again.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "A defect, or an accepted request that cannot be finished.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Tokens cannot advance now, or the server is draining.",
    HTTPStatus.GATEWAY_TIMEOUT: "It waited for too long.",
}
WITH_BODY = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNSUPPORTED_MEDIA_TYPE)


def body_of(*models: type[BaseModel], examples: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """``openapi_extra`` for a route that reads one of ``models`` as JSON."""
    _, definitions = models_json_schema([(model, "validation") for model in models], ref_template=LOCAL + "{model}")
    for model in models:
        _allow_null(definitions["$defs"][model.__name__])
    references = [{"$ref": LOCAL + model.__name__} for model in models]
    schema = {**(references[0] if len(models) == 1 else {"anyOf": references}), **definitions}
    content: dict[str, Any] = {"schema": schema}
    if examples:
        content["examples"] = {name: {"value": value} for name, value in examples.items()}
    return {"requestBody": {"content": {"application/json": content}, "required": True}}


def _allow_null(body: dict[str, Any]) -> None:
    """Null means the same as an absent field."""
    for name, field in body["properties"].items():
        if name not in body.get("required", ()) and {"type": "null"} not in field.get("anyOf", ()):
            told = {key: field.pop(key) for key in ("default", "description", "title") if key in field}
            body["properties"][name] = ({"anyOf": [dict(field), {"type": "null"}]} if field else {}) | told


def answers_of(whole: type[BaseModel], chunk: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with JSON, or with a stream of JSON events and then `[DONE]`."""
    told = {"anyOf": [{"$ref": SCHEMAS + model.__name__} for model in (chunk, ErrorAnswer)]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": told}
    event = {"type": "object", "properties": {"data": {"anyOf": [{"const": "[DONE]"}, data]}}, "required": ["data"]}
    stream = {"schema": event | {"description": "One event of the stream; the last one is `[DONE]`."}}
    return {
        200: {"model": whole, "description": "The whole answer, or a stream of it.", "content": {EVENT_STREAM: stream}}
    }


def install_openapi(app: FastAPI, *chunks: type[BaseModel]) -> None:
    """Makes ``app.openapi`` build the document; ``chunks`` are the models that only streams have."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app, chunks)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _document(app: FastAPI, chunks: Iterable[type[BaseModel]]) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes)
    extra = [(model, "serialization") for model in (*chunks, ErrorAnswer)]
    _, definitions = models_json_schema(extra, ref_template=LOCAL + "{model}")  # type: ignore[arg-type]
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    document["paths"] = _hoisted(document["paths"], schemas)
    _hoisted(definitions, schemas)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for path, operations in document["paths"].items():
        for method in operations.keys() & METHODS:
            _describe_errors(path, operations[method])
    return document


def _hoisted(value: Any, schemas: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The same with local definitions moved to the document's, so that their references hold."""
    if isinstance(value, list):
        return [_hoisted(item, schemas) for item in value]
    if not isinstance(value, dict):
        return value
    for name, definition in value.get("$defs", {}).items():
        if schemas.setdefault(name, moved := _hoisted(definition, schemas)) != moved:
            raise ValueError(f"two models of the API are called {name}")
    moved = {name: _hoisted(item, schemas) for name, item in value.items() if name != "$defs"}
    reference = moved.get("$ref")
    if isinstance(reference, str) and reference.startswith(LOCAL):
        moved["$ref"] = SCHEMAS + reference.removeprefix(LOCAL)
    return moved


def _describe_errors(path: str, operation: dict[str, Any]) -> None:
    """Every route answers failures alike. FastAPI's own 422 is never given: such values are 400 here."""
    responses = operation["responses"]
    responses.pop("422", None)
    for status, description in ERRORS.items():
        if status in WITH_BODY and "requestBody" not in operation:
            continue
        if str(status.value) not in responses:
            content = {"application/json": {"schema": {"$ref": SCHEMAS + "ErrorAnswer"}}}
            responses[str(status.value)] = {"description": description, "content": content}
    operation.setdefault("summary", path)
