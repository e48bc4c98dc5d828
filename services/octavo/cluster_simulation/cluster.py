"""The event loop: arrivals go through the router to workers, whose steps end one after the other."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from kvmanager.core.plan import PoolShape, PrefixHash, SequenceId
from octavo.cluster_simulation.batch import Job
from octavo.cluster_simulation.outcome import ClusterOutcome, Run, outcome_of
from octavo.cluster_simulation.servers import ServerName, cost_of, num_kv_slots
from octavo.cluster_simulation.trace import TraceRequest, scaled
from octavo.cluster_simulation.worker import Worker, WorkerShape
from octavo.errors import TraceUnusable
from scheduler.core.routing import (
    CachedPrefixes,
    Prompt,
    Route,
    RouterShape,
    RoutingPolicy,
    WorkerId,
    make_router,
)

WATERMARK = 0.01  # share of the blocks that an entering request leaves free, as kvmanager's default


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """Equal workers behind one router."""

    num_workers: int
    policy: RoutingPolicy
    server: ServerName = ServerName.LLAMA2_70B
    block_size: int = 512  # a divisor of it may be chosen; a trace's prefixes are known no finer
    num_slots: int | None = None  # of one worker; None: what fits its GPUs
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    load_weight: float = 1.0
    seed: int = 0  # of the drawn choices

    @property
    def pool(self) -> PoolShape:
        """Memory of one worker."""
        num_blocks = (self.num_slots or num_kv_slots(self.server)) // self.block_size
        return PoolShape(self.block_size, num_blocks, 0, int(WATERMARK * num_blocks))


@dataclass(frozen=True, slots=True)
class _Listener:
    """Tells the router what one worker caches."""

    worker_id: WorkerId
    prefixes: CachedPrefixes

    def published(self, prefix_hash: PrefixHash) -> None:
        self.prefixes.published(self.worker_id, prefix_hash)

    def evicted(self, prefix_hash: PrefixHash) -> None:
        self.prefixes.evicted(self.worker_id, prefix_hash)


class Cluster:
    """One trace on one cluster. Raises ``TraceUnusable`` for a trace with a request that never fits a worker."""

    def __init__(self, shape: ClusterShape, trace: Sequence[TraceRequest], num_copies: int = 1) -> None:
        _check_fits(trace, shape.pool)
        self._shape = shape
        self._trace = trace
        self._num_copies = num_copies
        draw = Random(shape.seed).randrange  # noqa: S311 - reproducible, not secret
        router_shape = RouterShape(shape.num_workers, shape.block_size, shape.load_weight)
        self.router = make_router(shape.policy, router_shape, draw)
        worker_shape = WorkerShape(shape.pool, cost_of(shape.server), shape.max_num_seqs, shape.max_num_batched_tokens)
        prefixes = self.router.prefixes
        self.workers = [
            Worker(worker_shape, None if prefixes is None else _Listener(WorkerId(index), prefixes))
            for index in range(shape.num_workers)
        ]
        self._ends: list[tuple[float, WorkerId]] = []  # of stretches; those that were cut since are passed over
        self._routes: dict[SequenceId, Route] = {}
        self._ttfts_s = array("d")
        self._latencies_s = array("d")
        self._last_end_s = 0.0

    def run(self) -> ClusterOutcome:
        """Runs until every request has ended."""
        for number, request in enumerate(scaled(self._trace, self._num_copies)):
            self._run_until(request.time_s)
            self._arrive(SequenceId(number), request)
        self._run_until(float("inf"))
        run = Run(
            self._shape.policy,
            self._num_copies,
            self._shape.pool.num_device_blocks,
            self._last_end_s,
            self._ttfts_s,
            self._latencies_s,
        )
        return outcome_of(run, [worker.tally for worker in self.workers])

    def _arrive(self, sequence_id: SequenceId, request: TraceRequest) -> None:
        hashes = request.prefix_hashes(self._shape.block_size)
        route = self.router.route(Prompt(request.num_prompt_tokens, hashes))
        self._routes[sequence_id] = route
        worker = self.workers[route.worker_id]
        before_s = worker.end_s
        worker.add(Job(sequence_id, request, hashes, request.num_prompt_tokens, request.time_s), request.time_s)
        if worker.end_s != before_s:
            self._expect(route.worker_id)

    def _run_until(self, time_s: float) -> None:
        """Ends every stretch that ends before ``time_s``."""
        while self._ends and self._ends[0][0] < time_s:
            end_s, worker_id = heappop(self._ends)
            worker = self.workers[worker_id]
            if worker.end_s != end_s:
                continue  # it was cut, and ended or will end at another time
            end = worker.finish()
            self._last_end_s = end_s
            for job in end.prefilled:
                self.router.prefilled(self._routes[job.sequence_id])
                self._ttfts_s.append(end_s - job.request.time_s)
            for job in end.ended:
                self.router.ended(self._routes.pop(job.sequence_id))
                self._latencies_s.append(end_s - job.request.time_s)
            self._expect(worker_id)

    def _expect(self, worker_id: WorkerId) -> None:
        end_s = self.workers[worker_id].end_s
        if end_s is not None:
            heappush(self._ends, (end_s, worker_id))


def _check_fits(trace: Sequence[TraceRequest], pool: PoolShape) -> None:
    longest = max(trace, key=lambda request: request.num_tokens)
    if longest.num_tokens > pool.num_device_blocks * pool.block_size:
        raise TraceUnusable(
            f"a request of {longest.num_prompt_tokens} prompt and {longest.num_output_tokens} output tokens never fits "
            f"the {pool.num_device_blocks} blocks of {pool.block_size} slots of a worker"
        )
