r"""What an answer tells of tokens besides their text, in the form of OpenAI's completions and of vLLM's fields.

``tokens`` are texts of single tokens; one that is no whole characters is written ``bytes:\xNN…``, as OpenAI does, so
that different tokens look different. ``token_ids`` and ``bytes`` beside them are exact.
"""

import codecs
from collections.abc import Iterable
from typing import Any

from scheduler.core.request import TokenLogprob
from scheduler.ports import Tokenizer


def token_text(raw: bytes) -> str:
    """A token as text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


class Offsets:
    """Where each token of a text begins, in characters; a token within a character begins where that one does."""

    def __init__(self, tokenizer: Tokenizer, start: int, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skips = skip_special_tokens
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._next = start

    def of(self, token_id: int) -> int:
        """The offset of the next token."""
        offset = self._next
        if not (self._skips and self._tokenizer.is_special(token_id)):
            self._next += len(self._decoder.decode(self._tokenizer.token_bytes(token_id)))
        return offset


def completion_logprobs(
    entries: Iterable[TokenLogprob], num_top: int, offsets: Offsets, tokenizer: Tokenizer
) -> dict[str, Any]:
    """OpenAI's object: columns with one entry per token.

    ``top_logprobs`` has the ``num_top`` most probable tokens and, where any are asked for, the token itself.
    """
    entries = list(entries)
    raw = [tokenizer.token_bytes(entry.token_id) for entry in entries]
    return {
        "tokens": [token_text(each) for each in raw],
        "token_logprobs": [entry.logprob for entry in entries],
        "top_logprobs": [_top(entry, num_top, tokenizer) for entry in entries],
        "text_offset": [offsets.of(entry.token_id) for entry in entries],
        "token_ids": [entry.token_id for entry in entries],
        "bytes": [list(each) for each in raw],
    }


def prompt_logprobs(entries: Iterable[TokenLogprob], num_top: int, tokenizer: Tokenizer) -> list[dict[str, Any] | None]:
    """The list that vLLM gives: for each prompt token but the first the most probable tokens and itself, by id."""

    def told(entry: TokenLogprob) -> dict[str, Any] | None:
        if entry.logprob is None:
            return None
        candidates = {**dict(entry.top[:num_top]), entry.token_id: entry.logprob}
        return {
            str(token_id): {"logprob": logprob, "decoded_token": token_text(tokenizer.token_bytes(token_id))}
            for token_id, logprob in candidates.items()
        }

    return [told(entry) for entry in entries]


def _top(entry: TokenLogprob, num_top: int, tokenizer: Tokenizer) -> dict[str, float] | None:
    if entry.logprob is None:
        return None
    if not num_top:
        return {}
    candidates = {**dict(entry.top[:num_top]), entry.token_id: entry.logprob}
    return {token_text(tokenizer.token_bytes(token_id)): logprob for token_id, logprob in candidates.items()}
