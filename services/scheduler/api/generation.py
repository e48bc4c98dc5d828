"""The deltas of one call: several prompts side by side, each aborted when the call ends early."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from scheduler.core.request import FinishReason, OutputDelta, Request
from scheduler.errors import RequestFailed
from scheduler.ports import Generator

Deltas = AsyncGenerator[OutputDelta, None]
IndexedDeltas = AsyncGenerator[tuple[int, OutputDelta], None]
"""The index of the prompt, and what was added to it."""


async def generate_all(generator: Generator, requests: Sequence[Request]) -> IndexedDeltas:
    """Deltas of all requests as they come. Closing it aborts what still runs.

    Raises what ``Generator.generate`` raises, and ``RequestFailed`` for a request that was aborted or met a fault.
    """
    streams = [_generate(generator, request) for request in requests]
    async with aclosing(_numbered(streams[0]) if len(streams) == 1 else _interleaved(streams)) as deltas:
        async for index, delta in deltas:
            if delta.finish_reason is FinishReason.ABORT or delta.finish_reason is FinishReason.ERROR:
                raise RequestFailed(f"the request ended by {delta.finish_reason.value} after its prompt was accepted")
            yield index, delta


async def _generate(generator: Generator, request: Request) -> Deltas:
    if request.stop.max_tokens == 0:
        yield OutputDelta(0, "", (), FinishReason.LENGTH)
        return
    async with aclosing(generator.generate(request)) as deltas:
        async for delta in deltas:
            yield delta


async def _numbered(stream: Deltas) -> IndexedDeltas:
    async with aclosing(stream):
        async for delta in stream:
            yield 0, delta


async def _interleaved(streams: Sequence[Deltas]) -> IndexedDeltas:
    queue: asyncio.Queue[tuple[int, OutputDelta] | asyncio.Task[None]] = asyncio.Queue()
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


async def _pump(index: int, stream: Deltas, put: Callable[[tuple[int, OutputDelta]], None]) -> None:
    async with aclosing(stream):
        async for delta in stream:
            put((index, delta))
