"""An engine with its peers in this process."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from doubles.model import expected_output, logprob_of
from doubles.peers import LetterTokenizer, MemoryPeer, WorkerPeer
from scheduler.core.queue_limits import QueueLimits
from scheduler.core.request import OutputDelta, Request
from scheduler.core.shape import SchedulerConfig
from scheduler.engine import Engine, EngineConfig


@dataclass
class Cluster:
    worker: WorkerPeer = field(default_factory=WorkerPeer)
    memory: MemoryPeer = field(default_factory=MemoryPeer)
    config: EngineConfig = field(
        default_factory=lambda: EngineConfig(
            scheduler=SchedulerConfig(16, 8),
            queue=QueueLimits(8),
            min_backoff_s=0.001,
            max_backoff_s=0.01,
            stall_after_s=0.05,
        )
    )

    def __post_init__(self) -> None:
        self.engine = Engine(self.worker, self.memory, LetterTokenizer(), self.config)

    async def ready(self) -> None:
        await self.until(lambda: self.engine.readiness.ready)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition():  # noqa: ASYNC110 (the condition is somebody else's state)
                await asyncio.sleep(0.001)

    async def idle(self) -> None:
        """The idle invariant: nobody holds anything."""
        pool, scheduler = self.memory.pool, self.engine.scheduler
        assert pool is not None
        assert scheduler is not None
        await self.until(lambda: pool.is_idle and not self.worker.model.tables)
        assert scheduler.groups == ()
        scheduler.check()


async def read(stream: AsyncGenerator[OutputDelta, None]) -> tuple[str, list[int], OutputDelta]:
    """Text, tokens and the last delta of a whole stream."""
    async with aclosing(stream):
        deltas = [delta async for delta in stream]
    assert [delta.finish_reason for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    text = "".join(delta.text for delta in deltas)
    return text, [token_id for delta in deltas for token_id in delta.token_ids], deltas[-1]


async def read_choices(stream: AsyncGenerator[OutputDelta, None]) -> list[str]:
    """The text of every choice, each of which ends once."""
    texts: dict[int, str] = defaultdict(str)
    ended: list[int] = []
    async with aclosing(stream):
        async for delta in stream:
            assert delta.choice_index not in ended
            assert delta.logprobs == tuple(map(logprob_of, delta.token_ids))
            texts[delta.choice_index] += delta.text
            if delta.finish_reason is not None:
                ended.append(delta.choice_index)
    assert sorted(ended) == sorted(texts) == list(range(len(texts)))
    return [text for _, text in sorted(texts.items())]


def alone(request: Request, choice_index: int = 0) -> str:
    """The text that a choice of a request has alone."""
    output = expected_output(request.prompt_token_ids, request.stop.max_tokens, choice_index=choice_index)
    return LetterTokenizer().decode(output)
