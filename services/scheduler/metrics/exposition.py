"""The page that Prometheus reads: what was counted, and how requests and memory stand now."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.errors import NotReady
from scheduler.inspection import Administrator, LiveRequest, Pool
from scheduler.metrics.instruments import Instruments

STATES = ("running", "swapped", "waiting")


class Exposition:
    """Asks the kvmanager for its pools once a page; while it does not answer, the page is without them."""

    def __init__(self, instruments: Instruments, admin: Administrator) -> None:
        self._registry = instruments.registry
        self._admin = admin
        self._view = _View()
        self._registry.register(self._view)

    async def page(self) -> bytes:
        """In Prometheus' text format."""
        try:
            pools = (await self._admin.pools.pools()).pools
        except NotReady:
            pools = []
        requests = self._admin.live_requests().requests
        self._view.metrics = [_requests(requests), *_pools(pools)]
        return generate_latest(self._registry)


class _View(Collector):
    """What was found for the page that is made now."""

    def __init__(self) -> None:
        self.metrics: Iterable[Metric] = ()

    def collect(self) -> Iterator[Metric]:
        yield from self.metrics


def _requests(requests: Iterable[LiveRequest]) -> Metric:
    counts = Counter(_state_of(request) for request in requests)
    family = GaugeMetricFamily("octavo_requests", "Requests that have not ended", labels=["state"])
    for state in STATES:
        family.add_metric([state], counts[state])
    return family


def _state_of(request: LiveRequest) -> str:
    """A request runs if one of its sequences does; the choices that wait for its prompt do not count."""
    statuses = {sequence.status for sequence in request.sequences}
    return next((state for state in STATES if state in statuses), STATES[-1])


def _pools(pools: Iterable[Pool]) -> list[Metric]:
    blocks = GaugeMetricFamily("octavo_pool_blocks", "Blocks of a KV pool", labels=["pool", "tier", "state"])
    prompt_tokens = CounterMetricFamily(
        "octavo_prefix_asked_tokens", "Known tokens of admitted sequences", labels=["pool"]
    )
    hit_tokens = CounterMetricFamily("octavo_prefix_hit_tokens", "Of these, found in the prefix cache", labels=["pool"])
    preemptions = CounterMetricFamily("octavo_preemptions", "Requests that gave way", labels=["pool", "mode"])
    evictions = CounterMetricFamily("octavo_evicted_blocks", "Cached blocks taken for other tokens", labels=["pool"])
    for pool in pools:
        for tier, state, num_blocks in _num_blocks(pool):
            blocks.add_metric([pool.pool_id, tier, state], num_blocks)
        prompt_tokens.add_metric([pool.pool_id], pool.counters.num_prompt_tokens)
        hit_tokens.add_metric([pool.pool_id], pool.counters.num_hit_tokens)
        preemptions.add_metric([pool.pool_id, "recompute"], pool.counters.num_recomputations)
        preemptions.add_metric([pool.pool_id, "swap"], pool.counters.num_swaps)
        evictions.add_metric([pool.pool_id], pool.counters.num_evicted_blocks)
    return [blocks, prompt_tokens, hit_tokens, preemptions, evictions]


def _num_blocks(pool: Pool) -> list[tuple[str, str, int]]:
    """Each block counts once; a cached one is free for whoever needs it, but holds a prefix."""
    num_free = pool.num_device_blocks - pool.num_used_device_blocks - pool.num_cached_device_blocks
    return [
        ("device", "used", pool.num_used_device_blocks),
        ("device", "cached", pool.num_cached_device_blocks),
        ("device", "free", num_free),
        ("host", "used", pool.num_used_host_blocks),
        ("host", "free", pool.num_host_blocks - pool.num_used_host_blocks),
    ]
