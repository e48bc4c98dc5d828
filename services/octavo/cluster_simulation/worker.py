"""One worker: a queue, a batch, a pool of blocks, and steps on a virtual clock.

A step is one plan to the worker's ``BlockSpace``. While everybody decodes and nobody ends, enters or gives way, steps
differ only in lengths: they are taken in one *stretch*, which an arrival cuts short at the next end of a step.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from kvmanager.core.plan import Plan, PoolShape
from octavo.cluster_simulation.batch import (
    Job,
    Row,
    entering_groups,
    rows_within,
    running_groups,
    sealed_blocks,
    shape_of,
)
from octavo.cluster_simulation.kvmanager_load import KvManagerLoad
from octavo.cluster_simulation.memory import CacheListener, WorkerMemory
from octavo.simulation.cost import CostModel

_LOOKAHEAD = 64  # waiting requests that a plan names, so that a long queue is not looked through in every step


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """What every worker of a cluster is."""

    pool: PoolShape
    cost: CostModel
    max_num_seqs: int
    max_num_batched_tokens: int


@dataclass(slots=True, eq=False)
class Stretch:
    """Equal steps in hand."""

    start_s: float
    rows: Sequence[Row]
    first_s: float  # seconds of the first step
    growth_s: float  # by which every step is longer than the one before
    num_steps: int
    is_cuttable: bool  # by an arrival

    def seconds(self, num_steps: int) -> float:
        """Seconds of the first ``num_steps`` steps."""
        return num_steps * self.first_s + self.growth_s * num_steps * (num_steps - 1) / 2

    @property
    def end_s(self) -> float:
        """When the last of them ends."""
        return self.start_s + self.seconds(self.num_steps)

    def cut(self, now_s: float) -> None:
        """Ends with the step that runs at ``now_s``."""
        low, high = 1, self.num_steps
        while low < high:
            middle = (low + high) // 2
            if self.start_s + self.seconds(middle) >= now_s:
                high = middle
            else:
                low = middle + 1
        self.num_steps = low


@dataclass(slots=True)
class WorkerTally:
    """Adds up what a worker did."""

    busy_s: float = 0.0
    waited_s: float = 0.0  # all requests together, in the queue
    used_blocks_s: float = 0.0  # blocks held, times seconds
    num_prompt_tokens: int = 0
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    kvmanager: KvManagerLoad = field(default_factory=KvManagerLoad)


@dataclass(frozen=True, slots=True)
class StepEnd:
    """What the end of a stretch brought."""

    prefilled: Sequence[Job]  # sampled their first token
    ended: Sequence[Job]


class Worker:
    """Told of arrivals and of the ends of its stretches, it says when the next one ends."""

    def __init__(self, shape: WorkerShape, listener: CacheListener | None) -> None:
        self.memory = WorkerMemory(shape.pool, listener)
        self.tally = WorkerTally()
        self._shape = shape
        self._waiting: deque[Job] = deque()
        self._running: list[Job] = []
        self._stretch: Stretch | None = None

    @property
    def end_s(self) -> float | None:
        """When what is in hand ends; ``None`` for an idle worker."""
        return None if self._stretch is None else self._stretch.end_s

    # --- Commands ---

    def add(self, job: Job, now_s: float) -> None:
        """Lines a request up. An idle worker begins at once; another after the step that runs."""
        self._waiting.append(job)
        if self._stretch is None:
            self._begin(now_s)
        elif self._stretch.is_cuttable:
            self._stretch.cut(now_s)

    def finish(self) -> StepEnd:
        """Ends what is in hand and begins the next, if there is anything to do."""
        stretch = self._stretch
        assert stretch is not None, "an idle worker has nothing to finish"
        self.tally.busy_s += stretch.end_s - stretch.start_s
        self._grow(stretch)
        prefilled, ended = [], []
        for row in stretch.rows:
            job = row.job
            if job.num_missing:
                continue  # more of its prompt comes
            if job.num_tokens == job.request.num_prompt_tokens:
                prefilled.append(job)
            job.num_tokens += stretch.num_steps
            job.num_slots += stretch.num_steps - 1
            if not job.num_left:
                ended.append(job)
        self._begin(stretch.end_s, ended)
        return StepEnd(prefilled, ended)

    def _begin(self, now_s: float, ended: Sequence[Job] = ()) -> None:
        sealed = sealed_blocks(self._running, self._shape.pool.block_size)
        released = [job.sequence_id for job in ended]
        if ended:
            gone = set(released)
            self._running = [job for job in self._running if job.sequence_id not in gone]
        rows = rows_within(self._running, self._shape.max_num_batched_tokens)
        left = self._shape.max_num_batched_tokens - sum(row.num_new_slots for row in rows)
        num_places = self._shape.max_num_seqs - len(self._running)
        entering = list(islice(self._waiting, min(num_places, _LOOKAHEAD))) if left > 0 else []
        if not (sealed.hashes or released or rows or entering):
            self._stretch = None
            return
        grant = self.memory.apply(
            Plan(
                self.memory.space.last_step_id + 1,
                sealed,
                released=released,
                running=running_groups(rows),
                entering=entering_groups(entering, left),
            )
        )
        if grant.preempted_group_ids:
            rows = self._give_way(rows, set(grant.preempted_group_ids), now_s)
        admitted = [
            self._enter(now_s, num_present, num_new)
            for num_present, num_new in zip(grant.num_present_tokens, grant.num_new_slots, strict=True)
        ]
        self.tally.kvmanager.planned(rows, admitted)
        rows += admitted
        if rows:
            self._stretch = self._compute(now_s, rows, is_steady=not (admitted or grant.preempted_group_ids))
        elif grant.preempted_group_ids:
            self._begin(now_s)  # all who were to run gave way: others run, or enter, without them
        else:
            assert not self._waiting, "an empty pool refuses nobody who fits it"
            self._stretch = None

    def _give_way(self, rows: Sequence[Row], preempted: set[int], now_s: float) -> list[Row]:
        """Those that lost their blocks go back to the head of the queue, in their order."""
        victims = [job for job in self._running if job.sequence_id in preempted]
        self._running = [job for job in self._running if job.sequence_id not in preempted]
        for job in reversed(victims):
            job.dropped(now_s)
            self._waiting.appendleft(job)
        self.tally.num_preemptions += len(victims)
        return [row for row in rows if row.job.sequence_id not in preempted]

    def _enter(self, now_s: float, num_present: int, num_new_slots: int) -> Row:
        job = self._waiting.popleft()
        self.tally.waited_s += now_s - job.waits_since_s
        if not job.entered_before:
            job.entered_before, job.num_cached_tokens = True, num_present
            self.tally.num_prompt_tokens += job.request.num_prompt_tokens
            self.tally.num_cached_tokens += num_present
        job.num_slots = num_present
        job.num_sealed = num_present // self._shape.pool.block_size
        self._running.append(job)
        return Row(job, num_new_slots)

    def _compute(self, now_s: float, rows: Sequence[Row], *, is_steady: bool) -> Stretch:
        shape = shape_of(rows)
        is_steady = is_steady and shape.num_prompts == 0 and len(rows) == len(self._running)
        for row in rows:
            row.job.num_slots += row.num_new_slots
        first_s = self._shape.cost.step_s(shape)
        growth_s = len(rows) * self._shape.cost.kv_token_s
        num_steps = self._num_certain_steps(rows) if is_steady else 1
        # Whoever waits now waits until somebody ends; whoever comes then waits behind them.
        return Stretch(now_s, rows, first_s, growth_s, num_steps, is_cuttable=num_steps > 1 and not self._waiting)

    def _num_certain_steps(self, rows: Sequence[Row]) -> int:
        """Steps in which nobody ends before the last one and nobody has to give way."""
        num_steps = min(row.job.num_left for row in rows)
        num_free = self._shape.pool.num_device_blocks - self.memory.num_used_blocks
        ids = [row.job.sequence_id for row in rows]
        while num_steps > 1 and self.memory.num_missing_blocks(ids, num_steps - 1) > num_free:
            num_steps //= 2
        return num_steps

    def _grow(self, stretch: Stretch) -> None:
        """Takes the blocks of all steps of a stretch but the first, which has its own."""
        self.tally.used_blocks_s += self.memory.num_used_blocks * (stretch.end_s - stretch.start_s)
        if stretch.num_steps > 1:
            running = running_groups(stretch.rows, stretch.num_steps - 1)
            self.memory.apply(Plan(self.memory.space.last_step_id + 1, running=running))
            self.tally.kvmanager.decoded(len(stretch.rows), stretch.num_steps - 1)
