"""The HTTP server: one process, one event loop, signals left to the composition root."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass, field

import uvicorn
from fastapi import FastAPI

from scheduler.errors import InvalidConfiguration
from scheduler.ports import Generator

CLOSE_GRACE_S = 2
"""Time for answers to reach their clients after the last token, in seconds."""


@dataclass(frozen=True, slots=True)
class StopSignals:
    """``stop`` asks to drain; ``hurry`` asks to end without waiting for running requests."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    def receive(self) -> None:
        """The first signal drains, the second hurries."""
        (self.hurry if self.stop.is_set() else self.stop).set()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ``InvalidConfiguration`` where that is impossible."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InvalidConfiguration(f"--host {host} --port {port}: cannot listen there: {error}") from None


async def serve(
    app: FastAPI, listener: socket.socket, generator: Generator, signals: StopSignals, drain_timeout_s: float
) -> None:
    """Answers until told to stop; then refuses new work, lets running requests end, and closes.

    While it drains, `/health` still answers and new completions get 503.
    """
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_config=None,
            log_level="warning",
            http="httptools",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_GRACE_S,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await _first_of(serving, signals.stop.wait())
    await _first_of(serving, generator.drain(drain_timeout_s), signals.hurry.wait())
    server.should_exit = True
    await serving


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _first_of(serving: asyncio.Task[None], *others: Awaitable[object]) -> None:
    """Returns when one of them ended; cancels the others. ``serving`` goes on."""
    tasks = [asyncio.ensure_future(other) for other in others]
    try:
        done, _ = await asyncio.wait({serving, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in done - {serving}:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
