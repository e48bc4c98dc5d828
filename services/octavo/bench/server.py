"""What a server with an OpenAI-compatible API can be asked, found out by asking."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from octavo.errors import BenchFailed

COMPLETIONS = "/v1/completions"
# Fields that make an output as long as asked for, most wanted first; OpenAI has none.
EXACT_LENGTH: tuple[Mapping[str, object], ...] = ({"ignore_eos": True, "min_tokens": 2}, {"ignore_eos": True}, {})
PROBE_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is and what it understands."""

    url: str
    model: str
    length_fields: frozenset[str] = frozenset()  # of `ignore_eos` and `min_tokens`
    takes_token_ids: bool = False
    max_model_len: int | None = None  # tokens of prompt and output; None: not told
    corpus: tuple[int, ...] = field(default=(), repr=False)  # the corpus in the server's tokens; empty: it has no route

    def body(self, prompt: str | list[int], num_tokens: int) -> dict[str, object]:
        """A streamed request for exactly ``num_tokens`` tokens, the likeliest each time."""
        lengths = {"ignore_eos": True, "min_tokens": num_tokens}
        return {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": num_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: value for name, value in lengths.items() if name in self.length_fields},
        }


def open_session(url: str, api_key: str | None) -> aiohttp.ClientSession:
    """Connections to one server, one for each request, and no time limit on the whole of an answer.

    A connection that is used again may be one that the server closes at this moment, which looks like a failure.
    """
    return aiohttp.ClientSession(
        base_url=url.rstrip("/") + "/",
        headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600),
    )


async def discover(session: aiohttp.ClientSession, url: str, model: str | None, corpus: str) -> Server:
    """Asks for the model, its tokens and what else the server takes. Raises ``BenchFailed``."""
    try:
        card = await _model_card(session, url, model)
        server = Server(url, model or str(card["id"]), max_model_len=card.get("max_model_len"))
        server = replace(server, length_fields=await _length_fields(session, server))
        corpus_ids, told_len = await _tokenize(session, server.model, corpus)
        takes_ids = bool(corpus_ids) and await _takes_token_ids(session, server, corpus_ids[:PROBE_TOKENS])
    except (aiohttp.ClientError, TimeoutError, OSError) as fault:
        raise BenchFailed(f"{url} does not answer: {fault or type(fault).__name__}") from fault
    return replace(
        server, corpus=corpus_ids, takes_token_ids=takes_ids, max_model_len=server.max_model_len or told_len or None
    )


async def _model_card(session: aiohttp.ClientSession, url: str, model: str | None) -> dict[str, Any]:
    status, answer = await _ask(session, "GET", "/v1/models")
    cards: list[dict[str, Any]] = answer.get("data", []) if status == 200 else []
    card = next((card for card in cards if model in (None, card.get("id"))), None)
    if card is None and model is None:
        raise BenchFailed(f"{url}/v1/models names no model (HTTP {status}); name one with --served-model-name")
    return card or {}


async def _length_fields(session: aiohttp.ClientSession, server: Server) -> frozenset[str]:
    answer: dict[str, Any] = {}
    for fields in EXACT_LENGTH:
        body = {"model": server.model, "prompt": "Once", "max_tokens": 2, "temperature": 0, **fields}
        status, answer = await _ask(session, "POST", COMPLETIONS, body)
        if status == 200:
            return frozenset(fields)
        if status not in (400, 422):
            break
    raise BenchFailed(f"{server.url}{COMPLETIONS} refuses a request: {answer}")


async def _tokenize(session: aiohttp.ClientSession, model: str, text: str) -> tuple[tuple[int, ...], int]:
    """Token ids of ``text`` and the server's longest sequence (0: not told); none where there is no such route.

    vLLM's and Octavo's route wants `prompt`, llama.cpp's `content`.
    """
    bodies: tuple[dict[str, object], ...] = (
        {"model": model, "prompt": text, "add_special_tokens": False},
        {"content": text},
    )
    for body in bodies:
        status, answer = await _ask(session, "POST", "/tokenize", body)
        if status == 200 and answer.get("tokens"):
            return tuple(answer["tokens"]), answer.get("max_model_len", 0)
    return (), 0


async def _takes_token_ids(session: aiohttp.ClientSession, server: Server, token_ids: tuple[int, ...]) -> bool:
    """A server that took the ids for something else would count other than ``len(token_ids)`` tokens."""
    body = {"model": server.model, "prompt": list(token_ids), "max_tokens": 1}
    status, answer = await _ask(session, "POST", COMPLETIONS, body)
    num_tokens: int = (answer.get("usage") or {}).get("prompt_tokens", 0)
    return status == 200 and num_tokens in (len(token_ids), len(token_ids) + 1)  # some put a BOS before


async def _ask(
    session: aiohttp.ClientSession, method: str, path: str, body: dict[str, object] | None = None
) -> tuple[int, dict[str, Any]]:
    async with session.request(method, path, json=body) as answer:
        try:
            told = await answer.json(content_type=None)
        except ValueError:
            told = {"text": (await answer.text())[:500]}
        return answer.status, told if isinstance(told, dict) else {"answer": told}
