"""A small client of the REST API: one streamed completion."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from octavo.errors import CompletionFailed

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to complete, and how far."""

    text: str
    max_tokens: int
    temperature: float = 0.0
    stop: str | None = None


def stream_completion(base_url: str, prompt: Prompt, api_key: str | None = None) -> Iterator[str]:
    """Pieces of the text that the API at ``base_url`` completes ``prompt`` with; raises ``CompletionFailed``."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    body = {
        "prompt": prompt.text,
        "max_tokens": prompt.max_tokens,
        "temperature": prompt.temperature,
        "stop": prompt.stop,
        "stream": True,
    }
    try:
        with (
            httpx.Client(base_url=base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream("POST", "/v1/completions", json=body) as answer,
        ):
            if not answer.is_success:
                answer.read()
                raise CompletionFailed(_message(answer.text) or f"HTTP {answer.status_code}: {answer.text[:500]}")
            yield from _texts(answer.iter_lines())
    except httpx.HTTPError as fault:
        raise CompletionFailed(f"{base_url}: {fault or type(fault).__name__}") from fault


def _texts(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        field, _, data = line.partition(": ")
        if field != "data" or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            raise CompletionFailed(event["error"]["message"])
        for choice in event["choices"]:
            yield choice["text"]


def _message(body: str) -> str | None:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        return None
    return str(message)
