"""What a simulated cluster came to."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.cluster_simulation.kvmanager_load import KvManagerLoad
from octavo.cluster_simulation.worker import WorkerTally
from scheduler.core.routing import RoutingPolicy


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of seconds, interpolated linearly."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Percentiles":
        """Of at least one value."""
        order = sorted(values)
        return cls(*(_quantile(order, share) for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True, slots=True)
class Balance:
    """How evenly workers share something; 1 and 0 are perfect."""

    max_over_mean: float
    variation: float  # standard deviation over mean

    @classmethod
    def of(cls, values: Sequence[float]) -> "Balance":
        """Of one value per worker; perfect if there is nothing to share."""
        mean = math.fsum(values) / len(values)
        if not mean:
            return cls(1.0, 0.0)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return cls(max(values) / mean, math.sqrt(variance) / mean)


@dataclass(frozen=True, slots=True)
class KvManagerRates:
    """What all kvmanagers together do a second."""

    plans_per_s: float  # and as many grants and journal entries
    core_share: float  # of one processor core, for `BlockSpace.apply` alone: 2.0 keeps two busy
    service_share: float  # the same with gRPC and Redis
    journal_bytes_per_s: float

    @classmethod
    def of(cls, load: KvManagerLoad, seconds: float) -> "KvManagerRates":
        """Averages over ``seconds``."""
        return cls(
            plans_per_s=load.num_plans / seconds,
            core_share=load.core_s / seconds,
            service_share=load.service_s / seconds,
            journal_bytes_per_s=load.journal_bytes / seconds,
        )


@dataclass(frozen=True, slots=True)
class ClusterOutcome:
    """One trace on one cluster under one policy."""

    policy: RoutingPolicy
    num_workers: int
    num_copies: int  # of the trace
    num_requests: int
    simulated_s: float  # from the first arrival to the last token
    hit_rate: float  # prompt tokens that were cached, of all
    ttft_s: Percentiles
    latency_s: Percentiles
    busy_share: float  # of the workers' time
    busy_balance: Balance
    mean_queue: float  # requests that wait at a worker
    queue_balance: Balance
    kv_use: float  # share of the blocks that sequences hold, averaged over time and workers
    num_preemptions: int
    kvmanager: KvManagerRates


@dataclass(frozen=True, slots=True)
class Run:
    """What was simulated, and for how long by the virtual clock."""

    policy: RoutingPolicy
    num_copies: int
    num_blocks: int  # of one pool
    simulated_s: float
    ttfts_s: Sequence[float]
    latencies_s: Sequence[float]


def outcome_of(run: Run, tallies: Sequence[WorkerTally]) -> ClusterOutcome:
    """Adds the workers up."""
    load = KvManagerLoad()
    for tally in tallies:
        load.add(tally.kvmanager)
    worker_s = run.simulated_s * len(tallies)
    busy_s, waited_s = [tally.busy_s for tally in tallies], [tally.waited_s for tally in tallies]
    return ClusterOutcome(
        policy=run.policy,
        num_workers=len(tallies),
        num_copies=run.num_copies,
        num_requests=len(run.latencies_s),
        simulated_s=run.simulated_s,
        hit_rate=sum(tally.num_cached_tokens for tally in tallies) / sum(tally.num_prompt_tokens for tally in tallies),
        ttft_s=Percentiles.of(run.ttfts_s),
        latency_s=Percentiles.of(run.latencies_s),
        busy_share=math.fsum(busy_s) / worker_s,
        busy_balance=Balance.of(busy_s),
        mean_queue=math.fsum(waited_s) / worker_s,
        queue_balance=Balance.of(waited_s),
        kv_use=math.fsum(tally.used_blocks_s for tally in tallies) / (worker_s * run.num_blocks),
        num_preemptions=sum(tally.num_preemptions for tally in tallies),
        kvmanager=KvManagerRates.of(load, run.simulated_s),
    )


def _quantile(order: Sequence[float], share: float) -> float:
    place = share * (len(order) - 1)
    low = int(place)
    high = min(low + 1, len(order) - 1)
    return order[low] + (order[high] - order[low]) * (place - low)
