"""What the API process costs: CPU time per streamed token, and time to the first byte.

The real application, server, tokenizer and streams run in a process of their own over a synthetic generator, which
gives every open request a token at each tick, as the engine does at each step. CPU time is the whole process's, user
and system, so it holds HTTP, JSON, tokenizing, the event loop and the generator; clients run in another process. The
first token is there at once, so the time to the first byte is overhead alone.

``python benchmarks/api_bench.py [--streams 64] [--tokens 300] [--tick-ms 20] [--keys]`` on an idle machine; with
``--keys`` every request carries a key with limits, and its tokens are counted.
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import AsyncGenerator
from multiprocessing.connection import Connection
from typing import Any, cast

import uvloop
from rich.console import Console
from rich.table import Table

from octavo import catalog
from scheduler.adapters.tokenizer import load_tokenizer
from scheduler.api.access import Access
from scheduler.api.app import create_app
from scheduler.api.completions import CompletionService
from scheduler.api.models import ServedModel
from scheduler.api.server import StopSignals, listen, serve
from scheduler.core.keys import KeyClass, KeyEntry, Keyring, digest_of
from scheduler.core.request import FinishReason, OutputDelta, Request, RequestId
from scheduler.engine.streams import RequestStream
from scheduler.ports import Generator, Readiness

KEY = "oct-bench-key"
PROMPT = "You are a patient librarian who answers every question about books with care and in one sentence. "
WORDS = (" the", " river", " runs", " through", " a", " quiet", " town")
NUM_LONE_REQUESTS = 300


class Metronome:
    """A ``Generator``: a token for every open request at each tick, the first at once."""

    readiness = Readiness(ready=True)
    max_model_len = 1 << 20

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._open: dict[RequestStream, int] = {}  # tokens that are still to come

    async def run(self) -> None:
        """Ticks until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            for stream in list(self._open):
                self._emit(stream)

    def _emit(self, stream: RequestStream) -> None:
        left = self._open[stream] = self._open[stream] - 1
        reason = FinishReason.LENGTH if left == 0 else None
        stream.put(OutputDelta(0, WORDS[left % len(WORDS)], (left,), reason, logprobs=(-1.0,)))
        if reason is not None:
            stream.end()
            del self._open[stream]

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:  # noqa: ARG002 - the protocol's
        """Any number."""
        return self.max_model_len

    def check(self, request: Request) -> None:
        """Accepts everything."""

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """A stream with its first token."""
        stream = RequestStream(lambda: None)
        self._open[stream] = request.stop.max_tokens
        self._emit(stream)
        return stream

    def abort(self, request_id: RequestId) -> bool:  # noqa: ARG002 - the protocol's
        """Nobody asks."""
        return False

    async def drain(self, deadline_s: float) -> None:
        """Nothing waits."""


class OneKey:
    """A key with limits that are never reached."""

    def keyring(self) -> Keyring:
        """The key."""
        limits = {"requests_per_minute": 10**9, "tokens_per_minute": 10**9}
        return Keyring({"bench": KeyEntry("bench", "t", KeyClass.INFERENCE, digest_of(KEY.encode()), **limits)})


def server_process(pipe: Connection, tick_s: float, with_keys: bool) -> None:
    """Tells its port, then its CPU seconds each time it is asked, until it is told to stop."""
    uvloop.run(_serve(pipe, tick_s, with_keys))


async def _serve(pipe: Connection, tick_s: float, with_keys: bool) -> None:
    path = catalog.locate(catalog.DEFAULT_MODEL)
    metronome, signals, listener = Metronome(tick_s), StopSignals(), listen("127.0.0.1", 0)
    model = ServedModel("bench", 0, "fp")
    service = CompletionService(cast("Generator", metronome), load_tokenizer(path), model, 1 << 20)
    app = create_app(service, cast("Any", _NoAdministration()), Access(OneKey() if with_keys else None))
    ticking = asyncio.create_task(metronome.run())
    serving = asyncio.create_task(serve(app, listener, cast("Generator", metronome), signals, 1.0))
    pipe.send(listener.getsockname()[1])
    while await asyncio.to_thread(pipe.recv):
        pipe.send(time.process_time())
    signals.stop.set()
    await serving
    ticking.cancel()


class _NoAdministration:
    pools = None


class Client:
    """Bare HTTP over one connection, so that the measuring process stays out of the way."""

    def __init__(self, port: int, max_tokens: int) -> None:
        self._port = port
        body = json.dumps({"prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        self._request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def __aenter__(self) -> "Client":
        """Connects."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connection."""
        self._writer.close()
        await self._writer.wait_closed()

    async def stream(self) -> float:
        """Sends a request and reads its whole stream; seconds to the first byte."""
        started_s = time.perf_counter()
        self._writer.write(self._request)
        tail = await self._reader.read(65536)
        first_s = time.perf_counter() - started_s
        assert tail.startswith(b"HTTP/1.1 200"), tail
        while not tail.endswith(b"0\r\n\r\n"):
            tail = (tail + await self._reader.read(65536))[-16:]
        return first_s


async def measure(port: int, pipe: Connection, streams: int, tokens: int) -> dict[str, float]:
    """CPU µs per token at so many streams, and milliseconds to the first byte of lone requests."""

    def cpu_s() -> float:
        pipe.send(True)
        return cast("float", pipe.recv())

    async def one(max_tokens: int) -> float:
        async with Client(port, max_tokens) as client:
            return await client.stream()

    await asyncio.gather(*(one(5) for _ in range(streams)))  # warm up
    async with Client(port, 1) as client:
        firsts_ms = sorted([1e3 * await client.stream() for _ in range(NUM_LONE_REQUESTS)])
    before_s, started_s = cpu_s(), time.perf_counter()
    together_ms = sorted(1e3 * first_s for first_s in await asyncio.gather(*(one(tokens) for _ in range(streams))))
    elapsed_s, used_s = time.perf_counter() - started_s, cpu_s() - before_s
    return {
        f"CPU per streamed token at {streams} streams, µs": 1e6 * used_s / (streams * tokens),
        "tokens per second": streams * tokens / elapsed_s,
        "CPU of the API process, %": 100 * used_s / elapsed_s,
        "time to first byte, one request, median, ms": statistics.median(firsts_ms),
        "time to first byte, one request, 99th percentile, ms": firsts_ms[int(0.99 * len(firsts_ms))],
        f"time to first byte, {streams} at once, median, ms": statistics.median(together_ms),
    }


def main() -> None:
    """Prints one table; best of the rounds by CPU time per token."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300, help="of each stream")
    parser.add_argument("--tick-ms", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", action="store_true")
    given = parser.parse_args()
    pipe, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=server_process, args=(theirs, given.tick_ms / 1e3, given.keys))
    server.start()
    port = pipe.recv()
    rounds = [asyncio.run(measure(port, pipe, given.streams, given.tokens)) for _ in range(given.rounds)]
    pipe.send(False)
    server.join()
    table = Table("what", "best round", box=None)
    for name, value in min(rounds, key=lambda result: next(iter(result.values()))).items():
        table.add_row(name, f"{value:.2f}" if value < 100 else f"{value:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
