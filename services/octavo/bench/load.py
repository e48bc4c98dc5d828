"""Sends the requests of a workload at their times."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from octavo.bench.prompts import Prompt
from octavo.bench.records import RequestRecord
from octavo.bench.workload import Workload

Send = Callable[[Prompt, int, int], Awaitable[RequestRecord]]  # prompt, its tokens, output tokens
OnEnd = Callable[[RequestRecord], None]


class Clock:
    """Seconds since it was started."""

    def __init__(self) -> None:
        self._started_s = time.perf_counter()

    def restart(self) -> None:
        """Counts from now."""
        self._started_s = time.perf_counter()

    def __call__(self) -> float:
        """The seconds since then."""
        return time.perf_counter() - self._started_s


async def send_all(
    workload: Workload, prompts: Sequence[Prompt], send: Send, clock: Clock, on_end: OnEnd
) -> list[RequestRecord]:
    """Sends each request when its time has come and there is room for it; returns the records in the order of sending.

    ``prompts`` belong to ``workload.shapes``. ``on_end`` hears of each end as it comes.
    """
    room = asyncio.Semaphore(workload.max_concurrency or len(workload.shapes) or 1)

    async def one(index: int) -> RequestRecord:
        shape = workload.shapes[index]
        try:
            record = await send(prompts[index], shape.num_prompt_tokens, shape.num_output_tokens)
        finally:
            room.release()
        on_end(record)
        return record

    clock.restart()
    async with asyncio.TaskGroup() as group:
        tasks = []
        for index, shape in enumerate(workload.shapes):
            await asyncio.sleep(max(0.0, shape.arrival_s - clock()))
            await room.acquire()
            tasks.append(group.create_task(one(index)))
    return [task.result() for task in tasks]
