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
    """One output of one prompt."""

    texts: list[str] = field(default_factory=list)
    num_tokens: int = 0
    sum_logprobs: float = 0.0
    last: OutputDelta | None = None

    @property
    def mean_logprob(self) -> float:
        """How probable the model itself finds the output, per token."""
        return self.sum_logprobs / max(self.num_tokens, 1)

    def add(self, delta: OutputDelta) -> None:
        """Appends one delta."""
        self.texts.append(delta.text)
        self.num_tokens += len(delta.token_ids)
        self.sum_logprobs += sum(delta.logprobs)
        self.last = delta

    def json(self, index: int) -> dict[str, Any]:
        """OpenAI's choice object, with the string or token id that stopped it."""
        reason = self.last.finish_reason if self.last is not None else None
        return {
            "index": index,
            "text": "".join(self.texts),
            "logprobs": None,
            "finish_reason": reason.value if reason is not None else None,
            "stop_reason": self.last.stop_reason if self.last is not None else None,
        }


class Choices:
    """The choices of all prompts of a call: prompt ``i``, choice ``j`` is returned at index ``i * n + j``."""

    def __init__(self, call: CompletionCall) -> None:
        self._num_returned = call.num_returned
        self._of_prompts = [[Choice() for _ in range(request.num_choices)] for request in call.requests]

    def add(self, prompt_index: int, delta: OutputDelta) -> None:
        """Appends one delta."""
        self._of_prompts[prompt_index][delta.choice_index].add(delta)

    def json(self) -> list[dict[str, Any]]:
        """The choices to return; where more were generated, each prompt's most probable ones, best first."""
        returned = [choice for choices in self._of_prompts for choice in self._best(choices)]
        return [choice.json(index) for index, choice in enumerate(returned)]

    def _best(self, choices: list[Choice]) -> list[Choice]:
        if len(choices) == self._num_returned:
            return choices
        return sorted(choices, key=lambda choice: -choice.mean_logprob)[: self._num_returned]
