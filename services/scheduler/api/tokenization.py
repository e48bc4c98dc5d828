"""`POST /tokenize`, `POST /detokenize` and `GET /version`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from scheduler.api.body import parse_body, read_body, read_json_object
from scheduler.api.calls import MAX_CHARS_ON_LOOP
from scheduler.api.completions import CompletionService
from scheduler.api.errors import invalid
from scheduler.api.fields import MAX_TOKEN_ID
from scheduler.api.messages import ConversationFields, chat_prompt
from scheduler.api.openapi import body_of
from scheduler.api.validation import StrictModel, as_tuple, whole_characters
from scheduler.ports import ChatTemplate


class TokenizeTextRequest(StrictModel):
    """A text as a prompt."""

    model: str | None = None
    prompt: Annotated[str, AfterValidator(whole_characters)]
    add_special_tokens: bool = Field(default=True, description="Adds what the tokenizer adds to any prompt.")
    return_token_strs: bool = False


class TokenizeChatRequest(ConversationFields):
    """A conversation as the model's template writes it down."""

    model: str | None = None
    return_token_strs: bool = False


class DetokenizeRequest(StrictModel):
    """Token ids; special tokens come out as they are written."""

    model: str | None = None
    tokens: Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)], ...], BeforeValidator(as_tuple)]


class TokenizeAnswer(BaseModel):
    """``max_model_len`` bounds prompt and output together, in tokens; 0 before the first worker attached."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeAnswer(BaseModel):
    """The text."""

    prompt: str


class VersionAnswer(BaseModel):
    """The server's version."""

    version: str


@dataclass(frozen=True, slots=True)
class TokenizationService:
    """Texts, conversations and token ids, without generating anything."""

    completions: CompletionService
    template: ChatTemplate | None

    async def tokenize(self, request: Request) -> TokenizeAnswer:
        """Raises ``ApiError`` or ``RequestRefused`` that name the field."""
        fields = await read_json_object(request, self.completions.max_body_bytes)
        if fields.get("messages") is None:
            return await self._of_text(parse_body(fields, TokenizeTextRequest))
        if fields.get("prompt") is not None:
            raise invalid("prompt and messages are given, but only one of them may be", param="prompt")
        body = parse_body(fields, TokenizeChatRequest)
        self.completions.model.require(body.model)
        token_ids = await chat_prompt(body, self.template, self.completions.tokenizer)
        return self._answer(token_ids, with_strs=body.return_token_strs)

    async def detokenize(self, request: Request) -> DetokenizeAnswer:
        """Raises ``ApiError`` that names an id that the vocabulary does not have."""
        body = await read_body(request, DetokenizeRequest, self.completions.max_body_bytes)
        self.completions.model.require(body.model)
        tokenizer = self.completions.tokenizer
        if (worst := max(body.tokens, default=0)) >= tokenizer.vocab_size:
            raise invalid(
                f"tokens has {worst}, but the vocabulary has ids 0 to {tokenizer.vocab_size - 1}", param="tokens"
            )
        text = await asyncio.to_thread(tokenizer.decode, body.tokens, skip_special_tokens=False)
        return DetokenizeAnswer(prompt=text)

    async def _of_text(self, body: TokenizeTextRequest) -> TokenizeAnswer:
        self.completions.model.require(body.model)
        encode = partial(self.completions.tokenizer.encode, add_special_tokens=body.add_special_tokens)
        is_long = len(body.prompt) > MAX_CHARS_ON_LOOP
        token_ids = await asyncio.to_thread(encode, body.prompt) if is_long else encode(body.prompt)
        return self._answer(token_ids, with_strs=body.return_token_strs)

    def _answer(self, token_ids: Sequence[int], *, with_strs: bool) -> TokenizeAnswer:
        return TokenizeAnswer(
            count=len(token_ids),
            max_model_len=self.completions.generator.max_model_len,
            tokens=[*token_ids],
            token_strs=self.completions.tokenizer.tokens(token_ids) if with_strs else None,
        )


def tokenization_router(service: TokenizationService, version: str) -> APIRouter:
    """The routes, described in the OpenAPI document by the models that validate them."""
    router = APIRouter(tags=["tokens"])

    @router.post("/tokenize", openapi_extra=body_of(TokenizeTextRequest, TokenizeChatRequest))
    async def tokenize(request: Request) -> TokenizeAnswer:
        """The token ids of a prompt or of a conversation."""
        return await service.tokenize(request)

    @router.post("/detokenize", openapi_extra=body_of(DetokenizeRequest))
    async def detokenize(request: Request) -> DetokenizeAnswer:
        """The text of token ids."""
        return await service.detokenize(request)

    @router.get("/version")
    async def get_version() -> VersionAnswer:
        """The server's version."""
        return VersionAnswer(version=version)

    return router
