"""Sends one streamed completion and notes when its text arrives."""

import json
from collections.abc import Callable
from typing import Any

import aiohttp

from octavo.bench.prompts import Prompt
from octavo.bench.records import RequestRecord
from octavo.bench.server import COMPLETIONS, Server

MAX_ERROR_CHARS = 200


class Answer:
    """What a stream has told so far."""

    def __init__(self) -> None:
        self.chunk_times_s: list[float] = []
        self.usage: dict[str, Any] = {}
        self.error = ""
        self._rest = b""

    def receive(self, data: bytes, now_s: float) -> None:
        """Takes what arrived at ``now_s``, which may end in the middle of an event."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                self._event(json.loads(line[5:]), now_s)

    def _event(self, event: dict[str, Any], now_s: float) -> None:
        if "error" in event:
            self.error = _shortened(event["error"])
        if any(choice.get("text") for choice in event.get("choices", ())):
            self.chunk_times_s.append(now_s)
        self.usage = event.get("usage") or self.usage


class CompletionsClient:
    """Asks ``server``; ``clock`` gives the seconds since the start of the run."""

    def __init__(self, session: aiohttp.ClientSession, server: Server, clock: Callable[[], float]) -> None:
        self._session = session
        self._server = server
        self._clock = clock

    async def complete(self, prompt: Prompt, num_prompt_tokens: int, num_wanted_tokens: int) -> RequestRecord:
        """Never raises for what a server does: a failure is a record with an error.

        Tokens are those that the server counts; one that does not is taken to send each by itself.
        """
        answer, sent_s = Answer(), self._clock()
        try:
            await self._stream(self._server.body(prompt, num_wanted_tokens), answer)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as fault:
            answer.error = _shortened(str(fault) or type(fault).__name__)
        usage = answer.usage
        return RequestRecord(
            sent_s=sent_s,
            ended_s=self._clock(),
            chunk_times_s=tuple(answer.chunk_times_s),
            num_prompt_tokens=usage.get("prompt_tokens", num_prompt_tokens),
            num_output_tokens=usage.get("completion_tokens", len(answer.chunk_times_s)),
            num_wanted_tokens=num_wanted_tokens,
            num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
            error=answer.error,
        )

    async def _stream(self, body: dict[str, object], answer: Answer) -> None:
        async with self._session.post(COMPLETIONS, json=body) as response:
            if response.status != 200:
                answer.error = f"HTTP {response.status}: {_shortened(await response.text())}"
                return
            async for data in response.content.iter_any():
                answer.receive(data, self._clock())


def _shortened(error: object) -> str:
    text = error if isinstance(error, str) else json.dumps(error)
    return text[:MAX_ERROR_CHARS]
