"""What every comparison shares: the model, the machine's threads, the scale, and how much effort it may take."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from rich.console import Console

from octavo.bench.private_cluster import plain_settings
from octavo.live.cluster import LiveCluster, live_cluster
from octavo.live.loads import Scale
from octavo.settings import ClusterSettings, PreemptionMode
from octavo.simulation.lengths import Length
from octavo.simulation.spaces import SpaceName

ORCA_CHUNKS = 2  # longest sequences that the pool holds; Table 1 has 7, but a CPU is busy with fewer at once


@dataclass(frozen=True, slots=True)
class Pool:
    """KV memory of a cluster. Slots are tokens."""

    num_slots: int
    block_size: int
    max_model_len: int
    num_host_slots: int = 0
    preemption_mode: PreemptionMode = PreemptionMode.AUTO


@dataclass(frozen=True, slots=True)
class Lab:
    """Starts clusters. ``threads`` is per worker."""

    model: str
    threads: int | None
    scale: Scale
    console: Console
    is_quick: bool = False

    @property
    def pool(self) -> Pool:
        """A pool that binds."""
        longest = self.scale.max_model_len
        return Pool(self.number(ORCA_CHUNKS, 1) * longest, self.scale.block_size, longest)

    def number(self, usual: int, quick: int) -> int:
        """A number of requests or rounds."""
        return quick if self.is_quick else usual

    def tell(self, what: str) -> None:
        """Shows what is measured now."""
        self.console.print(f"[dim]{what}[/]")

    @asynccontextmanager
    async def cluster(self, space: SpaceName, pool: Pool, lengths: Sequence[Length]) -> AsyncIterator[LiveCluster]:
        """A fresh cluster, for the requests ``lengths``. Raises ``OctavoError``."""
        self.tell(f"starting {space.value}, {pool.num_slots} slots in blocks of {pool.block_size}")
        async with live_cluster(self._settings(pool), space, lengths, self.console) as cluster:
            yield cluster

    def _settings(self, pool: Pool) -> ClusterSettings:
        return replace(
            plain_settings(self.model, self.threads),
            block_size=pool.block_size,
            num_device_blocks=pool.num_slots // pool.block_size,
            num_host_blocks=pool.num_host_slots // pool.block_size,
            max_model_len=pool.max_model_len,
            preemption_mode=pool.preemption_mode,
        )
