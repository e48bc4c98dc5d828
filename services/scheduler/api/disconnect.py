"""Ends the work for a client that went away."""

import asyncio
from collections.abc import Coroutine

from starlette.types import Receive


async def work_unless_disconnected(work: Coroutine[None, None, None], receive: Receive) -> None:
    """Runs ``work``; cancels it and returns when the client closes the connection. The body must have been read."""
    task = asyncio.create_task(work)
    watcher = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
