"""Fields that hold the output to a grammar."""

import asyncio
import json
from typing import Any, Literal

from pydantic import ConfigDict, Field

from scheduler.api.errors import invalid
from scheduler.api.validation import StrictModel
from scheduler.core.constraint import Grammar, GrammarKind, TokenConstraint
from scheduler.ports import GrammarCompiler

MAX_GRAMMAR_CHARS = 64 * 1024
ANY_OBJECT = '{"type":"object"}'
SCHEMA_PARAM = "response_format.json_schema.schema"
FIELDS = ("response_format", "regex", "grammar")


class JsonSchemaFormat(StrictModel):
    """OpenAI's wrapper of a schema. The output always fits it, whatever ``strict`` says."""

    model_config = ConfigDict(serialize_by_alias=True)

    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = Field(default=None, max_length=MAX_GRAMMAR_CHARS)
    schema_: dict[str, Any] = Field(alias="schema", description="A JSON schema. Keywords that are not known: 400.")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    """``json_object``: any JSON object. ``json_schema``: JSON that fits a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaFormat | None = None


class StructuredFields(StrictModel):
    """At most one of them may be given."""

    response_format: ResponseFormat | None = None
    regex: str | None = Field(
        default=None,
        max_length=MAX_GRAMMAR_CHARS,
        description="The whole output matches it. Rust's syntax, no look-around.",
    )
    grammar: str | None = Field(
        default=None, max_length=MAX_GRAMMAR_CHARS, description="A grammar in llguidance's variant of Lark."
    )


def grammar_of(body: StructuredFields) -> Grammar | None:
    """What the output is held to. Raises ``ApiError`` 400."""
    given = [name for name in FIELDS if getattr(body, name) is not None]
    if len(given) > 1:
        raise invalid(f"{' and '.join(given)} are given, but at most one of them may be", param=given[1])
    if body.regex is not None:
        return Grammar(GrammarKind.REGEX, body.regex, "regex")
    if body.grammar is not None:
        return Grammar(GrammarKind.LARK, body.grammar, "grammar")
    return _of_format(body.response_format) if body.response_format is not None else None


def _of_format(form: ResponseFormat) -> Grammar | None:
    if (form.type == "json_schema") != (form.json_schema is not None):
        needed = "required" if form.json_schema is None else "not accepted"
        raise invalid(
            f"response_format.json_schema is {needed} with type {form.type!r}", param="response_format.json_schema"
        )
    if form.json_schema is not None:
        return Grammar(GrammarKind.JSON_SCHEMA, _json(form.json_schema.schema_), SCHEMA_PARAM)
    return Grammar(GrammarKind.JSON_SCHEMA, ANY_OBJECT, "response_format") if form.type == "json_object" else None


def _json(schema: dict[str, Any]) -> str:
    try:
        return json.dumps(schema, ensure_ascii=False)
    except RecursionError:
        raise invalid(f"{SCHEMA_PARAM} is nested too deeply", param=SCHEMA_PARAM) from None


async def constraint_of(body: StructuredFields, compiler: GrammarCompiler | None) -> TokenConstraint | None:
    """The compiled grammar of a request. Raises ``ApiError`` or ``RequestRefused``, which name the field."""
    grammar = grammar_of(body)
    if grammar is None:
        return None
    if compiler is None:
        raise invalid(
            f"{grammar.param}: this server cannot hold outputs to a grammar",
            param=grammar.param,
            code="not_supported",
        )
    return await asyncio.to_thread(compiler.compile, grammar)
