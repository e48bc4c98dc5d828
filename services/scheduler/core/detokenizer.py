"""Text of a growing list of tokens, piece by piece."""

import codecs
from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
_PROMPT_TAIL = 5  # tokens that give the first output tokens their context, such as a leading space
_MAX_CHARACTER_BYTES = 4  # UTF-8 has no longer ones, and each token has at least one byte
_WINDOW = 8  # tokens that are decoded again before the window moves on
_MAX_STALL = 8  # tokens without new text; no character has that many bytes, so the bytes are invalid


def ends_within_character(token_ids: Sequence[int], token_bytes: Callable[[int], bytes]) -> bool:
    """Whether more tokens may complete a last character of which these hold a part; U+FFFD itself is a whole one."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(b"".join(map(token_bytes, token_ids[-_MAX_CHARACTER_BYTES:])))
    return bool(decoder.getstate()[0])


class Detokenizer:
    """Emits each character once and whole.

    A token may hold part of a character, and a token's text may depend on its neighbours. So a small window of
    tokens is decoded again for each new one, and only what is new and complete in its text comes out. The window
    moves forward only to places where the text was complete.

    ``decode`` turns token ids into text, with U+FFFD for incomplete UTF-8. Where the prompt ends within a character
    (``completes_prompt``), the output begins with that character; no other text of the prompt is emitted.
    """

    __slots__ = ("_complete_at", "_decode", "_num_emitted", "_stall", "_window")

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        prompt_token_ids: Sequence[int] = (),
        *,
        completes_prompt: bool = False,
    ) -> None:
        self._decode = decode
        self._window = list(prompt_token_ids[-_PROMPT_TAIL:])
        self._complete_at = 0  # the latest place in the window, before its last push, where the text was complete
        before = decode(self._window) if self._window else ""
        self._num_emitted = len(before.rstrip(REPLACEMENT) if completes_prompt else before)
        self._stall = 0

    def push(self, token_id: int) -> str:
        """New text that became complete with this token; may be empty."""
        self._window.append(token_id)
        text = self._decode(self._window)
        complete = not text.endswith(REPLACEMENT) or self._stall >= _MAX_STALL
        new = (text if complete else text.rstrip(REPLACEMENT))[self._num_emitted :]
        self._stall = 0 if new or complete else self._stall + 1
        self._num_emitted += len(new)
        if complete:
            self._advance()
        return new

    def flush(self) -> str:
        """What is left when no more tokens come, less a character that was cut off."""
        new = self._decode(self._window).rstrip(REPLACEMENT)[self._num_emitted :]
        self._num_emitted += len(new)
        return new

    def _advance(self) -> None:
        if len(self._window) > _WINDOW and self._complete_at:
            del self._window[: self._complete_at]
            self._num_emitted = len(self._decode(self._window))
        self._complete_at = len(self._window)
