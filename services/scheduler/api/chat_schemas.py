"""The body of `POST /v1/chat/completions`.

OpenAI's fields that ask for what this server does not do stand here with the values that ask for nothing.
"""

from typing import Annotated, Any

from pydantic import Field

from scheduler.api.body import parse_body
from scheduler.api.errors import invalid
from scheduler.api.fields import MAX_LOGPROBS, MAX_TOKENS, GenerationFields
from scheduler.api.messages import ConversationFields
from scheduler.api.structured_output import StructuredFields
from scheduler.api.validation import not_supported_beyond

MAX_METADATA = 16
MAX_KEY_CHARS = 64
MAX_VALUE_CHARS = 512
NOTHING = not_supported_beyond(None)

Key = Annotated[str, Field(max_length=MAX_KEY_CHARS)]
Value = Annotated[str, Field(max_length=MAX_VALUE_CHARS)]


class ChatCompletionRequest(ConversationFields, GenerationFields, StructuredFields):
    """Null means the same as an absent field: the default."""

    max_completion_tokens: int | None = Field(
        default=None, ge=0, le=MAX_TOKENS, description="default: as many as the context and the pool have room for"
    )
    max_tokens: int | None = Field(default=None, ge=0, le=MAX_TOKENS, description="the older name")
    logprobs: bool = False
    top_logprobs: int | None = Field(
        default=None, ge=0, le=MAX_LOGPROBS, description="most probable tokens told with each token; needs logprobs"
    )
    metadata: dict[Key, Value] | None = Field(
        default=None, max_length=MAX_METADATA, description="accepted and not used"
    )
    store: Annotated[Any, not_supported_beyond(None, False)] = False
    service_tier: Annotated[Any, not_supported_beyond(None, "auto", "default")] = None
    safety_identifier: str | None = Field(default=None, max_length=MAX_VALUE_CHARS, description="accepted and not used")
    modalities: Annotated[Any, not_supported_beyond(None, ["text"])] = None

    tools: Annotated[Any, not_supported_beyond(None, [])] = None
    tool_choice: Annotated[Any, not_supported_beyond(None, "none")] = None
    parallel_tool_calls: Annotated[Any, NOTHING] = None
    functions: Annotated[Any, not_supported_beyond(None, [])] = None
    function_call: Annotated[Any, not_supported_beyond(None, "none")] = None
    audio: Annotated[Any, NOTHING] = None
    prediction: Annotated[Any, NOTHING] = None
    reasoning_effort: Annotated[Any, NOTHING] = None
    verbosity: Annotated[Any, NOTHING] = None
    web_search_options: Annotated[Any, NOTHING] = None
    prompt_cache_key: Annotated[Any, NOTHING] = None
    prompt_cache_retention: Annotated[Any, NOTHING] = None


def parse_chat_request(fields: dict[str, Any]) -> ChatCompletionRequest:
    """Raises ``ApiError`` 400 that names the field, its value and the limit."""
    request = parse_body(fields, ChatCompletionRequest)
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid(f"top_logprobs is {request.top_logprobs}, but logprobs is not true", param="top_logprobs")
    if request.prompt_logprobs is not None and request.stream:
        raise invalid("prompt_logprobs is not accepted with stream: true", param="prompt_logprobs")
    given = (request.max_completion_tokens, request.max_tokens)
    if None not in given and given[0] != given[1]:
        raise invalid(
            f"max_completion_tokens is {given[0]} and max_tokens is {given[1]}: they mean the same, so give one",
            param="max_tokens",
        )
    return request
