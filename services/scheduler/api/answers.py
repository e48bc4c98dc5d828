"""The answers of the inference routes as models, for the OpenAPI document and for tests.

Answers are encoded by hand, for speed; the tests hold them against these models.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length", "abort"]


class AnswerModel(BaseModel):
    """No unknown fields."""

    model_config = ConfigDict(extra="forbid")


class PromptTokensDetails(AnswerModel):
    """Of the prompt's tokens."""

    cached_tokens: int = Field(description="Tokens that the prefix cache had.")


class UsageAnswer(AnswerModel):
    """Tokens over all prompts and choices; a prompt counts once."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Envelope(AnswerModel):
    """What every answer and every chunk has."""

    id: str
    created: int = Field(description="Seconds since 1970.")
    model: str
    system_fingerprint: str


class CompletionLogprobs(AnswerModel):
    """Columns with one entry per token; the first token of an echoed prompt has no log-probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int] = Field(description="Where each token begins, in characters.")
    token_ids: list[int]
    bytes: list[list[int]]


class PromptLogprob(AnswerModel):
    """A token in its place of the prompt."""

    logprob: float
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]


class CompletionChoiceDelta(AnswerModel):
    """A piece of one output."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = Field(description="The stop string or token id that ended it.")
    prompt_logprobs: PromptLogprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionChoiceAnswer(CompletionChoiceDelta):
    """One output of one prompt: prompt ``i``, choice ``j`` is at index ``i * n + j``."""

    finish_reason: FinishReason
    beam_score: float | None = Field(default=None, description="With use_beam_search: what the choices are ordered by.")


class CompletionAnswer(Envelope):
    """OpenAI's completion."""

    object: Literal["text_completion"]
    choices: list[CompletionChoiceAnswer]
    usage: UsageAnswer


class CompletionChunk(Envelope):
    """OpenAI's chunk of a completion."""

    object: Literal["text_completion"]
    choices: list[CompletionChoiceDelta]
    usage: UsageAnswer | None = None


class TopLogprob(AnswerModel):
    """A token in its place. ``bytes`` may be a part of a character."""

    token: str
    bytes: list[int]
    logprob: float


class ChatTokenLogprob(TopLogprob):
    """A token that was generated, and the most probable ones in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(AnswerModel):
    """One entry per token."""

    content: list[ChatTokenLogprob]
    refusal: None


class AssistantMessage(AnswerModel):
    """What the model said."""

    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoiceAnswer(AnswerModel):
    """One of ``n`` answers."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | None = Field(description="The stop string or token id that ended it.")
    token_ids: list[int] | None = None


class ChatCompletionAnswer(Envelope):
    """OpenAI's chat completion."""

    object: Literal["chat.completion"]
    choices: list[ChatChoiceAnswer]
    usage: UsageAnswer
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class ChatDelta(AnswerModel):
    """What was added: first the role, then content, at last nothing."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChatChunkChoice(AnswerModel):
    """A piece of one answer."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | int | None = None
    token_ids: list[int] | None = None


class ChatCompletionChunk(Envelope):
    """OpenAI's chunk of a chat completion."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: UsageAnswer | None = None


class ModelCard(AnswerModel):
    """The served model."""

    id: str
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: str


class ModelList(AnswerModel):
    """All models: one."""

    object: Literal["list"]
    data: list[ModelCard]


class HealthAnswer(AnswerModel):
    """The process lives."""

    status: Literal["ok"]


class ReadyAnswer(AnswerModel):
    """Whether tokens can advance, and if not, what is waited for."""

    ready: bool
    reason: str
