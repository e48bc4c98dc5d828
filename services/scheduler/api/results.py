"""What a call has produced so far, and its JSON."""

from dataclasses import dataclass, field
from typing import Any

from scheduler.api.calls import CompletionCall
from scheduler.api.models import ServedModel
from scheduler.core.request import OutputDelta


def envelope(call: CompletionCall, model: ServedModel, created: int) -> dict[str, Any]:
    """The fields that a whole answer and every chunk share. ``created`` in seconds since 1970."""
    return {
        "id": call.completion_id,
        "object": "text_completion",
        "created": created,
        "model": model.name,
        "system_fingerprint": model.fingerprint,
    }


@dataclass(slots=True)
class Usage:
    """Counts tokens over all prompts of a call."""

    num_prompt_tokens: int
    num_completion_tokens: int = 0
    num_cached_tokens: dict[int, int] = field(default_factory=dict)  # by prompt

    def add(self, index: int, delta: OutputDelta) -> None:
        """Counts one delta of the prompt at ``index``."""
        self.num_completion_tokens += len(delta.token_ids)
        if delta.num_cached_tokens:
            self.num_cached_tokens[index] = max(delta.num_cached_tokens, self.num_cached_tokens.get(index, 0))

    def json(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_completion_tokens,
            "prompt_tokens_details": {"cached_tokens": sum(self.num_cached_tokens.values())},
        }


@dataclass(slots=True)
class Choice:
    """The output of one prompt."""

    index: int
    texts: list[str] = field(default_factory=list)
    last: OutputDelta | None = None

    def add(self, delta: OutputDelta) -> None:
        """Appends one delta."""
        self.texts.append(delta.text)
        self.last = delta

    def json(self) -> dict[str, Any]:
        """OpenAI's choice object, with the string or token id that stopped it."""
        reason = self.last.finish_reason if self.last is not None else None
        return {
            "index": self.index,
            "text": "".join(self.texts),
            "logprobs": None,
            "finish_reason": reason.value if reason is not None else None,
            "stop_reason": self.last.stop_reason if self.last is not None else None,
        }
