"""The deltas of one call: several prompts side by side, each aborted when the call ends early."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing

from scheduler.core.request import FinishReason, OutputDelta, Request
from scheduler.errors import RequestFailed
from scheduler.ports import Generator

IndexedDelta = tuple[int, OutputDelta]
"""The index of the prompt, and what was added to its output."""


async def generate_all(generator: Generator, requests: Sequence[Request]) -> AsyncGenerator[IndexedDelta, None]:
    """Deltas of all requests as they come. All are accepted before the first is waited for, or none.

    Closing it aborts what still runs. Raises what ``Generator.generate`` raises, and ``RequestFailed`` when the
    system ended a request.
    """
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(aclosing(generator.generate(request))) for request in requests]
        merged = _numbered(streams[0]) if len(streams) == 1 else _interleaved(streams)
        deltas = await stack.enter_async_context(aclosing(merged))
        async for index, delta in deltas:
            if delta.finish_reason is FinishReason.ERROR:
                raise RequestFailed("the request was ended by a fault of the server")
            yield index, delta


async def _numbered(stream: AsyncGenerator[OutputDelta, None]) -> AsyncGenerator[IndexedDelta, None]:
    async for delta in stream:
        yield 0, delta


async def _interleaved(streams: Sequence[AsyncGenerator[OutputDelta, None]]) -> AsyncGenerator[IndexedDelta, None]:
    queue: asyncio.Queue[IndexedDelta | asyncio.Task[None]] = asyncio.Queue()
    pumps = [asyncio.create_task(_pump(index, stream, queue.put_nowait)) for index, stream in enumerate(streams)]
    for pump in pumps:
        pump.add_done_callback(queue.put_nowait)
    num_running = len(pumps)
    try:
        while num_running:
            item = await queue.get()
            if isinstance(item, asyncio.Task):
                item.result()
                num_running -= 1
            else:
                yield item
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(index: int, stream: AsyncGenerator[OutputDelta, None], put: Callable[[IndexedDelta], None]) -> None:
    async for delta in stream:
        put((index, delta))
