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
KV_USE = re.compile(
    r"^(?:vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc|llamacpp:kv_cache_usage_ratio)(?:\{[^}]*\})? (\S+)",
    re.MULTILINE,
)


@dataclass(slots=True)
class Watch:
    """What was read so far."""

    values: list[float] = field(default_factory=list)

    def result(self) -> Gauges:
        """The figures."""
        return Gauges(statistics.fmean(self.values), max(self.values)) if self.values else Gauges()


class GaugeReader:
    """Reads one server: by Octavo's admin API where ``admin_key`` is given, by its metrics elsewhere."""

    def __init__(self, session: aiohttp.ClientSession, admin_key: str | None) -> None:
        self._session = session
        self._admin_key = admin_key

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
            return await (self._from_metrics() if self._admin_key is None else self._from_pools(self._admin_key))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None

    async def _from_pools(self, admin_key: str) -> float | None:
        headers = {"Authorization": f"Bearer {admin_key}"}
        async with self._session.get("/admin/v1/pools", headers=headers) as answer:
            pools = (await answer.json())["pools"] if answer.status == 200 else []
        num_blocks = sum(pool["num_device_blocks"] for pool in pools)
        return sum(pool["num_used_device_blocks"] for pool in pools) / num_blocks if num_blocks else None

    async def _from_metrics(self) -> float | None:
        async with self._session.get("/metrics") as answer:
            found = KV_USE.findall(await answer.text()) if answer.status == 200 else []
        return statistics.fmean(map(float, found)) if found else None
