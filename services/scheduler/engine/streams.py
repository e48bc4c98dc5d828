"""What one request produced, on its way to whoever reads it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import cast

from scheduler.core.request import OutputDelta
from scheduler.errors import SchedulerError


class RequestStream(AsyncGenerator[OutputDelta, None]):
    """An asynchronous generator that the engine fills.

    It exists and counts from the moment of acceptance, even if nobody ever asks for the first delta; closing it
    before its end calls ``on_abandoned`` once.
    """

    def __init__(self, on_abandoned: Callable[[], None]) -> None:
        self._on_abandoned = on_abandoned
        self._deltas: deque[OutputDelta] = deque()
        self._error: SchedulerError | None = None
        self._reader: asyncio.Future[None] | None = None  # who waits for the next delta
        self._ended = False  # nothing is added any more

    def put(self, delta: OutputDelta) -> None:
        """Adds a delta."""
        self._deltas.append(delta)
        self._wake_reader()

    def end(self, error: SchedulerError | None = None) -> None:
        """Says that nothing follows, or that ``error`` does."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake_reader()

    async def asend(self, value: None) -> OutputDelta:  # noqa: ARG002 (a reader sends nothing)
        """The next delta.

        Raises:
            SchedulerError: The request failed.
            StopAsyncIteration: It is complete.

        """
        while not self._deltas:
            if self._ended:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        return self._deltas.popleft()

    async def athrow(self, typ: object, val: object = None, tb: TracebackType | None = None) -> OutputDelta:
        """Closes the stream and raises what was thrown."""
        await self.aclose()
        error = typ if val is None else val
        if isinstance(error, BaseException):
            raise error.with_traceback(tb)
        raise cast("type[BaseException]", typ)

    async def aclose(self) -> None:
        """Abandons the request if it has not ended."""
        self._deltas.clear()
        if not self._ended:
            self.end()
            self._on_abandoned()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
