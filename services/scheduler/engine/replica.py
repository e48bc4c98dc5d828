"""One worker with its pool and its queue: the loop plan → grant → execute → commit.

While the worker computes one step, the next is planned, granted and queued there, so that it does not wait:

    loop    plan 2  grant 2 │ commit 1  plan 3  grant 3 │ commit 2  …
    worker  ─ step 1 ───────┴─ step 2 ──────────────────┴─ step 3 ─
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from scheduler.core.limits import Limits
from scheduler.core.prefix_hash import PrefixDomain
from scheduler.core.request import FinishReason, GroupId, Request, RequestId
from scheduler.core.scheduler import MAX_STEPS_IN_HAND, Scheduler
from scheduler.core.sequence import SequenceGroup
from scheduler.core.shape import MemoryShape
from scheduler.core.steps import Grant
from scheduler.engine.boundary import Boundary
from scheduler.engine.config import EngineConfig
from scheduler.engine.flow import Flow
from scheduler.engine.link import FreshMemory, Link
from scheduler.engine.outputs import Outputs
from scheduler.engine.progress import Progress
from scheduler.engine.streams import RequestStream
from scheduler.engine.worker_steps import WorkerSteps
from scheduler.errors import (
    MemoryUnavailable,
    NotReady,
    QueueTimeout,
    RequestFailed,
    RequestRefused,
    StepRefused,
    WorkerUnavailable,
)

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0  # how often an idle loop looks after its connections
_PAUSE_S = 0.02  # before asking again for memory that nobody of ours holds


class Replica:
    """Schedules the requests of one worker and survives the loss of either peer.

    A plan or step whose answer was lost is sent again. When the KV memory is gone, what ran is computed again from
    its known tokens; the streams show no gap and no repeat.
    """

    def __init__(self, link: Link, outputs: Outputs, config: EngineConfig) -> None:
        self._link = link
        self._outputs = outputs
        self._config = config
        self._scheduler: Scheduler | None = None
        self._wake = asyncio.Event()
        self._backoff_s = config.min_backoff_s
        self._num_refused_steps = 0  # since the last committed one
        self._in_hand = WorkerSteps(link.worker)
        self.boundary = Boundary()
        self.progress = Progress(asyncio.get_running_loop().time)
        self.flow = Flow(asyncio.get_running_loop().time)

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduling core; ``None`` before the first worker attached. To look at, not to change."""
        return self._scheduler

    @property
    def worker_id(self) -> str:
        """Whose pool is scheduled; empty before the first worker attached."""
        return self._link.worker_id

    @property
    def num_open(self) -> int:
        """Sequences that have not ended."""
        return len(self._outputs)

    def submit(self, request: Request) -> RequestStream:
        """Queues a request.

        Raises:
            RequestRefused: It can never be served.

        """
        if self._scheduler is None:
            raise NotReady(self.progress.trouble)
        if not self.num_open:
            self.progress.begin_work()
        group = self._scheduler.add(request)
        self._wake.set()
        if self._config.queue_timeout_s:
            asyncio.get_running_loop().call_later(self._config.queue_timeout_s, self._expire, request.request_id)
        return self._outputs.open(group, self._dropper(group))

    def abort(self, group: SequenceGroup) -> None:
        """Ends a group's stream with ``FinishReason.ABORT`` and frees its blocks."""
        self._outputs.finish(group, FinishReason.ABORT)
        self._end(group, FinishReason.ABORT)

    async def run(self) -> None:
        """Connects and steps until cancelled. No fault ends it."""
        try:
            await self._run()
        finally:
            await self._in_hand.drop()

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
                while True:
                    await self._advance()
            except (MemoryUnavailable, WorkerUnavailable) as error:
                self._note_trouble(str(error))
            except StepRefused as error:
                self._distrust(error)
            except Exception as error:
                logger.exception("a step failed")
                self._start_over(error)
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, self._config.max_backoff_s)

    # ---- the loop

    async def _advance(self) -> None:
        """Steps until nothing is in hand."""
        scheduler = self._scheduler
        assert scheduler is not None, "connected before"
        async with self.boundary.steps():
            await self._hand_out(scheduler)
            has_stepped = bool(self._in_hand)
            while self._in_hand:
                await self._take_result(scheduler)
                if not self.boundary.is_wanted:
                    await self._hand_out(scheduler)
        if not has_stepped:
            await self._park()

    async def _hand_out(self, scheduler: Scheduler) -> None:
        """Has the worker compute whatever can be planned now. What it was to compute when it went away comes first."""
        for step in scheduler.unanswered_steps[len(self._in_hand) :]:
            self._in_hand.send(step)
        max_in_hand = MAX_STEPS_IN_HAND if self._config.overlaps else 1
        while len(self._in_hand) < max_in_hand:
            plan = scheduler.plan()
            if plan is None:
                return
            grant = await self._link.memory.grant(plan)
            _tell(grant, scheduler.gave_way)
            num_returned = len(grant.preempted_group_ids) + len(scheduler.gave_way)
            self.flow.note(len(grant.admitted_group_ids) - num_returned)
            self._in_hand.send(scheduler.apply(grant))

    async def _take_result(self, scheduler: Scheduler) -> None:
        """Waits for the oldest step, and tells what it brought."""
        result = await self._in_hand.take()
        is_empty = not scheduler.unanswered_steps[0].sequence_ids
        scheduler.finish(self._outputs.deliver(scheduler.commit(result)))
        self._backoff_s = self._config.min_backoff_s
        self._num_refused_steps = 0
        if not is_empty:
            self.progress.note()
        elif scheduler.groups and not self._in_hand:
            await asyncio.sleep(_PAUSE_S)

    async def _park(self) -> None:
        """Nothing to do: waits for work, and looks after the connections meanwhile."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_S):
                await self._wake.wait()
        if not self._link.worker.is_open:
            raise WorkerUnavailable("the gpuworker ended the stream")
        if not self._link.memory.is_open:
            raise MemoryUnavailable("the kvmanager ended the stream")

    async def _connect(self) -> None:
        scheduler = self._scheduler
        answered: tuple[int, ...] = ()
        if scheduler is not None:
            answered = (scheduler.last_step_id,)
            if scheduler.unanswered_plan is not None:
                answered = (scheduler.last_step_id - 1, scheduler.last_step_id)
        if not self._link.worker.is_open:
            await self._in_hand.drop()
        fresh = await self._link.connect(answered)
        if fresh is not None:
            await self._in_hand.drop()
            self._take(fresh)
        self.progress.connected()
        logger.info("connected; the next step follows %d", self._scheduler.last_step_id if self._scheduler else 0)

    def _take(self, fresh: FreshMemory) -> None:
        """Schedules memory that holds nothing of ours, and gives up requests that do not fit it any more."""
        shape = self._shape(fresh)
        if self._scheduler is None:
            self._scheduler = Scheduler(self._config.scheduler, shape)
            return
        self._scheduler.restart_memory(shape)
        for group in self._scheduler.groups:
            try:
                shape.limits.check(group.request)
            except RequestRefused as error:
                self._outputs.fail(group, RequestFailed(f"the worker came back smaller: {error}"))
                self._end(group, FinishReason.ERROR)

    def _shape(self, fresh: FreshMemory) -> MemoryShape:
        worker = fresh.worker
        wanted = self._config.max_model_len
        return MemoryShape(
            epoch=worker.epoch,
            # A pool that answered no step yet follows any; the worker does not go back.
            last_step_id=fresh.pool.last_step_id or worker.last_step_id,
            limits=Limits(
                max_model_len=min(wanted or worker.max_model_len, worker.max_model_len),
                vocab_size=worker.vocab_size,
                block_size=worker.block_size,
                num_device_blocks=worker.num_device_blocks,
                max_num_seqs=self._config.scheduler.max_num_seqs,
                policy=self._config.scheduler.policy,
            ),
            domain=PrefixDomain(worker.model_fingerprint, deployment_seed=self._config.deployment_seed),
        )

    # ---- when something went wrong

    def _note_trouble(self, reason: str) -> None:
        if not self.progress.trouble:
            logger.warning("%s; requests wait", reason)
        self.progress.disconnected(reason)

    def _distrust(self, error: StepRefused) -> None:
        """Sequences at fault fail. The rest begin afresh once; if that does not help, their requests are at fault."""
        self._fail_sequences(error)
        self._num_refused_steps += not error.sequence_ids
        if self._num_refused_steps > 1:
            self._start_over(error)
            return
        logger.error("%s; running requests are computed again", error)
        self._link.distrust()
        self.progress.disconnected(str(error))

    def _fail_sequences(self, error: StepRefused) -> None:
        at_fault = set(error.sequence_ids)
        for group in self._scheduler.groups if self._scheduler and at_fault else ():
            if any(sequence.sequence_id in at_fault for sequence in group.sequences):
                self._outputs.fail(group, RequestFailed(str(error)))
                self._end(group, FinishReason.ERROR)

    def _start_over(self, error: Exception) -> None:
        """The state cannot be trusted: every request fails, and a new scheduler begins with empty peers."""
        self._outputs.fail_all(RequestFailed(f"the request was lost to a fault: {error}"))
        self._scheduler = None
        self._num_refused_steps = 0
        self._link.distrust()
        self.progress.disconnected(f"recovering from a fault: {error}")

    # ---- ends

    def _expire(self, request_id: RequestId) -> None:
        """Fails a request that has no token yet."""
        group = self._outputs.find(request_id)
        if group is not None and not any(sequence.num_output_tokens for sequence in group.sequences):
            self._outputs.fail(group, QueueTimeout(f"no token within {self._config.queue_timeout_s:g} s of waiting"))
            self._end(group, FinishReason.ABORT)

    def _dropper(self, group: SequenceGroup) -> Callable[[], None]:
        def drop() -> None:
            self._outputs.drop(group)
            self._end(group, FinishReason.ABORT)

        return drop

    def _end(self, group: SequenceGroup, reason: FinishReason) -> None:
        if self._scheduler is not None:
            self._scheduler.abort(group.group_id, reason)
        self._wake.set()


def _tell(grant: Grant, gave_way: Iterable[GroupId]) -> None:
    """Logs who gave way, how, and why."""
    for group_id in gave_way:
        logger.info("step %d: group %d gives way by recompute: a more urgent one enters", grant.step_id, group_id)
    for group_id, mode in zip(grant.preempted_group_ids, grant.preempted_modes, strict=True):
        logger.info(
            "step %d: group %d gives way by %s: those before it need more blocks than are free (%d used, %d on host)",
            grant.step_id,
            group_id,
            mode.name.lower(),
            grant.usage.num_used_device_blocks,
            grant.usage.num_used_host_blocks,
        )
