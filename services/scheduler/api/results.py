"""What a call has produced so far, and its JSON."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.api import sse
from scheduler.api.calls import CompletionCall
from scheduler.api.models import ServedModel
from scheduler.api.token_details import Offsets, completion_logprobs, prompt_logprobs
from scheduler.core.request import OutputDelta
from scheduler.ports import Tokenizer


def envelope(kind: str, call: CompletionCall, model: ServedModel, created: int) -> dict[str, Any]:
    """The fields that a whole answer and every chunk share. ``created`` in seconds since 1970."""
    return {
        "id": call.completion_id,
        "object": kind,
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


class ChoiceTeller:
    """What the deltas of one choice add to an answer: text, and what the call asks for besides."""

    def __init__(self, call: CompletionCall, prompt_index: int, tokenizer: Tokenizer) -> None:
        self._call = call
        self._tokenizer = tokenizer
        self._request = call.requests[prompt_index]
        self._prompt_text = call.prompt_texts[prompt_index] if call.prompt_texts else ""
        self._is_begun = False
        self._offsets = self._offsets_from(len(self._prompt_text))

    def json(self, index: int, delta: OutputDelta) -> dict[str, Any]:
        """A choice object with what ``delta`` adds, and with the prompt's part if it is the first."""
        call, begins = self._call, not self._is_begun
        self._is_begun = True
        choice = {
            "index": index,
            "text": self._prompt_text + delta.text if begins and call.echo else delta.text,
            "logprobs": None,
            "finish_reason": delta.finish_reason.value if delta.finish_reason is not None else None,
            "stop_reason": delta.stop_reason,
        }
        if call.num_logprobs is not None:
            choice["logprobs"] = self._logprobs(delta, call.num_logprobs, begins=begins)
        if begins and call.num_prompt_logprobs is not None:
            choice["prompt_logprobs"] = prompt_logprobs(
                delta.prompt_logprobs, call.num_prompt_logprobs, self._tokenizer
            )
        if call.returns_token_ids:
            choice["token_ids"] = delta.token_ids
            choice |= {"prompt_token_ids": self._request.prompt_token_ids} if begins else {}
        if delta.beam_score is not None:
            choice["beam_score"] = delta.beam_score
        return choice

    def _logprobs(self, delta: OutputDelta, num_top: int, *, begins: bool) -> dict[str, Any]:
        told = completion_logprobs(delta.token_logprobs, num_top, self._offsets, self._tokenizer)
        if not (begins and self._call.echo):
            return told
        prompt = completion_logprobs(delta.prompt_logprobs, num_top, self._offsets_from(0), self._tokenizer)
        return {name: prompt[name] + column for name, column in told.items()}

    def _offsets_from(self, start: int) -> Offsets:
        return Offsets(self._tokenizer, start, skip_special_tokens=self._request.skip_special_tokens)


@dataclass(slots=True)
class Choice:
    """One output of one prompt."""

    deltas: list[OutputDelta] = field(default_factory=list)

    @property
    def mean_logprob(self) -> float:
        """How probable the model itself finds the output, per token."""
        logprobs = [logprob for delta in self.deltas for logprob in delta.logprobs]
        return sum(logprobs) / max(len(logprobs), 1)

    @property
    def whole(self) -> OutputDelta:
        """All deltas as one."""
        return OutputDelta(
            choice_index=self.deltas[-1].choice_index,
            text="".join(delta.text for delta in self.deltas),
            token_ids=tuple(token_id for delta in self.deltas for token_id in delta.token_ids),
            finish_reason=self.deltas[-1].finish_reason,
            stop_reason=self.deltas[-1].stop_reason,
            logprobs=tuple(logprob for delta in self.deltas for logprob in delta.logprobs),
            tops=tuple(top for delta in self.deltas for top in delta.tops),
            prompt_logprobs=self.deltas[0].prompt_logprobs,
            beam_score=self.deltas[-1].beam_score,
        )


class Choices:
    """The choices of all prompts of a call: prompt ``i``, choice ``j`` is returned at index ``i * n + j``."""

    def __init__(self, call: CompletionCall, envelope: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._call = call
        self._envelope = envelope
        self._tokenizer = tokenizer
        self._of_prompts = [[Choice() for _ in range(request.num_choices)] for request in call.requests]

    def add(self, prompt_index: int, delta: OutputDelta) -> None:
        """Appends one delta."""
        self._of_prompts[prompt_index][delta.choice_index].deltas.append(delta)

    def json(self) -> dict[str, Any]:
        """The answer with the choices to return; where more were generated, each prompt's most probable, best first."""
        told: list[dict[str, Any]] = []
        for prompt_index, choices in enumerate(self._of_prompts):
            for choice in self._best(choices):
                teller = ChoiceTeller(self._call, prompt_index, self._tokenizer)
                told.append(teller.json(len(told), choice.whole))
        return {**self._envelope, "choices": told}

    def _best(self, choices: list[Choice]) -> list[Choice]:
        if len(choices) == self._call.num_returned:
            return choices
        return sorted(choices, key=lambda choice: -choice.mean_logprob)[: self._call.num_returned]


class Chunks:
    """The events of a stream. Those of a call that asks for text alone are made without building objects."""

    def __init__(self, call: CompletionCall, envelope: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._num_returned = call.num_returned
        self._encoder = sse.ChunkEncoder(envelope, include_usage=call.include_usage)
        self._tellers: list[ChoiceTeller] = []
        if call.tells_more_than_text:
            self._tellers = [
                ChoiceTeller(call, prompt_index, tokenizer)
                for prompt_index in range(len(call.requests))
                for _ in range(call.num_returned)
            ]

    def of(self, prompt_index: int, delta: OutputDelta) -> Iterator[bytes]:
        """What a delta adds to its choice, if anything."""
        index = prompt_index * self._num_returned + delta.choice_index
        if self._tellers:
            yield self._encoder.choice(self._tellers[index].json(index, delta))
        elif delta.text or delta.finish_reason is not None:
            yield self._encoder.chunk(index, delta)

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The last chunk: no choices."""
        return self._encoder.usage(usage)
