"""Moments at which no step is in hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Boundary:
    """Between the loop, which has steps in hand nearly always, and whoever wants to look between two of them."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._num_waiting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits: the loop hands out nothing more, and steps out when what it has is done."""
        return self._num_waiting > 0

    @asynccontextmanager
    async def steps(self) -> AsyncIterator[None]:
        """The loop has steps in hand."""
        async with self._lock:
            yield

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Waits for the steps in hand, and holds the next one up."""
        self._num_waiting += 1
        try:
            await self._lock.acquire()
        finally:
            self._num_waiting -= 1
        try:
            yield
        finally:
            self._lock.release()
