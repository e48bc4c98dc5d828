"""What a chat call has produced, whole and in chunks, in OpenAI's form."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.api import sse
from scheduler.api.calls import CompletionCall
from scheduler.api.token_details import prompt_logprobs, token_text
from scheduler.core.request import OutputDelta, TokenLogprob
from scheduler.ports import Tokenizer


def chat_logprobs(entries: tuple[TokenLogprob, ...], num_top: int, tokenizer: Tokenizer) -> dict[str, Any]:
    """OpenAI's chat form of log-probabilities, with the ``num_top`` most probable tokens in each place."""

    def told(token_id: int, logprob: float | None) -> dict[str, Any]:
        raw = tokenizer.token_bytes(token_id)
        return {"token": token_text(raw), "bytes": [*raw], "logprob": logprob}

    content = [
        told(entry.token_id, entry.logprob) | {"top_logprobs": [told(*top) for top in entry.top[:num_top]]}
        for entry in entries
    ]
    return {"content": content, "refusal": None}


@dataclass(slots=True)
class ChatChoice:
    """One answer."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    last: OutputDelta | None = None

    def add(self, delta: OutputDelta) -> None:
        """Appends one delta."""
        self.texts.append(delta.text)
        self.token_ids += delta.token_ids
        self.logprobs += delta.token_logprobs
        self.prompt_logprobs = self.prompt_logprobs or delta.prompt_logprobs
        self.last = delta


class ChatAnswer:
    """The whole answer of a call."""

    def __init__(self, call: CompletionCall, envelope: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._call = call
        self._envelope = envelope
        self._tokenizer = tokenizer
        self._choices = [ChatChoice() for _ in range(call.num_returned)]

    def add(self, prompt_index: int, delta: OutputDelta) -> None:  # noqa: ARG002 - there is one prompt
        """Appends one delta."""
        self._choices[delta.choice_index].add(delta)

    def json(self) -> dict[str, Any]:
        """OpenAI's object; each choice with the string or token id that stopped it."""
        choices = [self._json(index, choice) for index, choice in enumerate(self._choices)]
        answer = {**self._envelope, "choices": choices}
        if self._call.returns_token_ids:
            answer["prompt_token_ids"] = self._call.requests[0].prompt_token_ids
        if (num_top := self._call.num_prompt_logprobs) is not None:
            answer["prompt_logprobs"] = prompt_logprobs(self._choices[0].prompt_logprobs, num_top, self._tokenizer)
        return answer

    def _json(self, index: int, choice: ChatChoice) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(choice.texts), "refusal": None}
        answer = {"index": index, "message": message, "logprobs": None, **_reasons(choice.last)}
        if (num_top := self._call.num_logprobs) is not None:
            answer["logprobs"] = chat_logprobs(tuple(choice.logprobs), num_top, self._tokenizer)
        if self._call.returns_token_ids:
            answer["token_ids"] = choice.token_ids
        return answer


class ChatChunks:
    """The events of a stream. Each answer begins with its role and ends with a chunk that has no content."""

    def __init__(self, call: CompletionCall, envelope: Mapping[str, Any], tokenizer: Tokenizer) -> None:
        self._call = call
        self._tokenizer = tokenizer
        self._encoder = sse.ChunkEncoder(envelope, include_usage=call.include_usage)
        self._begun: set[int] = set()

    def of(self, prompt_index: int, delta: OutputDelta) -> Iterator[bytes]:  # noqa: ARG002 - there is one prompt
        """What a delta adds to its answer."""
        index = delta.choice_index
        if index not in self._begun:
            self._begun.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""})
        if delta.text or (delta.token_ids and self._tells_tokens):
            yield self._content(delta)
        if delta.finish_reason is not None:
            yield self._chunk(index, {}, **_reasons(delta))

    def usage(self, usage: Mapping[str, Any]) -> bytes:
        """The last chunk: no choices."""
        return self._encoder.usage(usage)

    @property
    def _tells_tokens(self) -> bool:
        return self._call.num_logprobs is not None or self._call.returns_token_ids

    def _content(self, delta: OutputDelta) -> bytes:
        if not self._tells_tokens:
            told = f'"delta":{{"content":{sse.encode(delta.text)}}},"logprobs":null,"finish_reason":null'
            return self._encoder.encoded(f'{{"index":{delta.choice_index},{told}}}')
        more: dict[str, Any] = {}
        if (num_top := self._call.num_logprobs) is not None:
            more["logprobs"] = chat_logprobs(delta.token_logprobs, num_top, self._tokenizer)
        if self._call.returns_token_ids:
            more["token_ids"] = delta.token_ids
        return self._chunk(delta.choice_index, {"content": delta.text}, **more)

    def _chunk(self, index: int, delta: Mapping[str, Any], **more: Any) -> bytes:  # noqa: ANN401 - JSON
        return self._encoder.choice({"index": index, "delta": delta, "logprobs": None, "finish_reason": None} | more)


def _reasons(last: OutputDelta | None) -> dict[str, Any]:
    reason = last.finish_reason if last is not None else None
    return {
        "finish_reason": reason.value if reason is not None else None,
        "stop_reason": last.stop_reason if last is not None else None,
    }
