"""How full a server's KV memory is while it is measured."""

import asyncio
import contextlib
import re
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp

from octavo.bench.results import Gauges

INTERVAL_S = 0.5
# Share of KV memory in use as a gauge of /metrics: vLLM's, its older name, llama.cpp's.
SHARE = re.compile(
    r"^(?:vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc|llamacpp:kv_cache_usage_ratio)(?:\{[^}]*\})? (\S+)",
    re.MULTILINE,
)
BLOCKS = re.compile(r"^octavo_pool_blocks\{([^}]*)\} (\S+)", re.MULTILINE)


def kv_use_of(page: str) -> float | None:
    """Share of KV memory that requests hold, from a page in Prometheus' text format; ``None`` if it is not told."""
    blocks = [(labels, float(count)) for labels, count in BLOCKS.findall(page) if 'tier="device"' in labels]
    if num_blocks := sum(count for _, count in blocks):
        return sum(count for labels, count in blocks if 'state="used"' in labels) / num_blocks
    shares = SHARE.findall(page)
    return statistics.fmean(map(float, shares)) if shares else None


@dataclass(slots=True)
class Watch:
    """What was read so far."""

    values: list[float] = field(default_factory=list)

    def result(self) -> Gauges:
        """The figures."""
        return Gauges(statistics.fmean(self.values), max(self.values)) if self.values else Gauges()


class GaugeReader:
    """Reads the metrics of one server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[Watch]:
        """Reads again and again until the end of the block; a server that does not tell is asked once."""
        watch = Watch()
        reading = asyncio.create_task(self._read_on(watch))
        try:
            yield watch
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading

    async def _read_on(self, watch: Watch) -> None:
        while (value := await self._kv_use()) is not None:
            watch.values.append(value)
            await asyncio.sleep(INTERVAL_S)

    async def _kv_use(self) -> float | None:
        try:
            async with self._session.get("/metrics") as answer:
                return kv_use_of(await answer.text()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None
