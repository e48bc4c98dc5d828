"""The messages of a chat request, and the prompt that the model's template makes of them."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from scheduler.api.errors import invalid
from scheduler.api.validation import FIELD_ERROR, StrictModel, as_tuple, not_supported_beyond, whole_characters
from scheduler.core.chat import ChatMessage
from scheduler.ports import ChatTemplate, Tokenizer

MAX_MESSAGES = 4096
MAX_NAME_CHARS = 256
CONTENT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
                "required": ["type", "text"],
                "additionalProperties": False,
            },
        },
    ]
}

Role = Literal["system", "developer", "user", "assistant", "tool"]


def content_of(value: object) -> str:
    """The text of a message; parts are joined by new lines. Raises ``PydanticCustomError`` for any other form."""
    if isinstance(value, str):
        return whole_characters(value)
    if not isinstance(value, list) or not value:
        raise PydanticCustomError(FIELD_ERROR, "must be a string or a list of text parts")
    return "\n".join(_part(index, part) for index, part in enumerate(value))


def _part(index: int, part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind != "text":
        raise PydanticCustomError(
            FIELD_ERROR,
            "has part {index} of type {kind}, but only text is supported",
            {"index": index, "kind": repr(kind)[:40]},
        )
    if part.keys() != {"type", "text"} or not isinstance(part["text"], str):
        raise PydanticCustomError(FIELD_ERROR, "has part {index}, which must have a type and a text", {"index": index})
    return whole_characters(part["text"])


class Message(StrictModel):
    """One message. What assistants may have besides text is refused."""

    role: Role
    content: Annotated[str, PlainValidator(content_of), WithJsonSchema(CONTENT_SCHEMA)]
    name: str | None = Field(default=None, min_length=1, max_length=MAX_NAME_CHARS)
    tool_call_id: str | None = Field(default=None, max_length=MAX_NAME_CHARS)

    refusal: Annotated[Any, not_supported_beyond(None)] = None
    audio: Annotated[Any, not_supported_beyond(None)] = None
    tool_calls: Annotated[Any, not_supported_beyond(None, [])] = None
    function_call: Annotated[Any, not_supported_beyond(None)] = None


class ConversationFields(StrictModel):
    """What decides the prompt of a chat."""

    messages: Annotated[tuple[Message, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_MESSAGES)]
    add_generation_prompt: bool = Field(default=True, description="Ends the prompt with the beginning of an answer.")
    continue_final_message: bool = Field(
        default=False, description="Leaves the last message open; needs add_generation_prompt: false."
    )
    add_special_tokens: bool = Field(
        default=False, description="Adds what the tokenizer adds to any prompt; most templates have it already."
    )


async def chat_prompt(body: ConversationFields, template: ChatTemplate | None, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Token ids of the rendered conversation. Raises ``ApiError`` or ``RequestRefused``."""
    if template is None:
        raise invalid(
            "messages: the model has no chat template; use /v1/completions with a prompt",
            param="messages",
            code="no_chat_template",
        )
    if body.continue_final_message and body.add_generation_prompt:
        raise invalid(
            "continue_final_message is true, but add_generation_prompt is not false: only one can end the prompt",
            param="continue_final_message",
        )
    return await asyncio.to_thread(_encoded, body, template, tokenizer)


def _encoded(body: ConversationFields, template: ChatTemplate, tokenizer: Tokenizer) -> tuple[int, ...]:
    messages = [ChatMessage(m.role, m.content, m.name, m.tool_call_id) for m in body.messages]
    parts = template.render(
        messages,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
    )
    token_ids = tokenizer.encode_parts(parts)
    return tuple(_with_prefix(token_ids, tokenizer) if body.add_special_tokens else token_ids)


def _with_prefix(token_ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """With the special tokens that begin any prompt, unless the template wrote them."""
    prefix = tokenizer.encode("")
    return [*token_ids] if [*token_ids[: len(prefix)]] == prefix else [*prefix, *token_ids]
