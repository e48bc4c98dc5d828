"""The engine as the API sees it: requests in, deltas out."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from scheduler.core.request import FinishReason, OutputDelta, Request, RequestId
from scheduler.core.scheduler import Scheduler
from scheduler.engine.config import EngineConfig
from scheduler.engine.link import Link
from scheduler.engine.outputs import Outputs
from scheduler.engine.replica import Replica
from scheduler.engine.streams import RequestStream
from scheduler.errors import NotReady, QueueFull, RequestFailed, RequestRefused
from scheduler.ports import Memory, Readiness, Tokenizer, Worker


class Engine:
    """Implements ``Generator`` on one worker and its pool.

    Construct it inside a running event loop; ``start`` begins to connect and step, ``close`` ends.
    """

    def __init__(
        self, worker: Worker, memory: Memory, tokenizer: Tokenizer, config: EngineConfig | None = None
    ) -> None:
        self._config = config or EngineConfig()
        self._link = Link(worker, memory)
        self._outputs = Outputs(tokenizer.decode, tokenizer.token_bytes)
        self._replica = Replica(self._link, self._outputs, self._config)
        self._loop: asyncio.Task[None] | None = None
        self._draining = False

    # ---- life

    async def start(self) -> None:
        """Begins to connect; returns at once. ``readiness`` says when requests can be served."""
        if self._loop is None:
            self._loop = asyncio.create_task(self._replica.run(), name="scheduler loop")

    async def drain(self, deadline_s: float) -> None:
        """Refuses new requests and returns when the accepted ones ended or ``deadline_s`` passed."""
        self._draining = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                await self._outputs.wait_empty()

    async def close(self) -> None:
        """Stops stepping, fails what is still open, and closes the connections."""
        self._draining = True
        if self._loop is not None:
            self._loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop
            self._loop = None
        self._outputs.fail_all(RequestFailed("the scheduler stops"))
        await self._link.close()

    # ---- state

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduling core with its counters, to look at; ``None`` before the first worker attached."""
        return self._replica.scheduler

    @property
    def replica(self) -> Replica:
        """The replica that schedules, for administration."""
        return self._replica

    @property
    def max_model_len(self) -> int:
        """Most tokens, prompt and output together, that one sequence may have. 0 before the first worker attached."""
        scheduler = self._replica.scheduler
        return scheduler.memory.limits.max_model_len if scheduler else 0

    @property
    def readiness(self) -> Readiness:
        """Ready while both peers are connected and, if there is work, tokens advance."""
        progress = self._replica.progress
        if self._draining:
            return Readiness(ready=False, reason="the scheduler is draining")
        if progress.trouble:
            return Readiness(ready=False, reason=progress.trouble)
        stalled_s = progress.stalled_s(has_work=self._replica.num_open > 0)
        if stalled_s > self._config.stall_after_s:
            return Readiness(ready=False, reason=f"no token advanced for {stalled_s:.0f} s")
        return Readiness(ready=True)

    # ---- requests

    def max_output_tokens(self, num_prompt_tokens: int, num_choices: int) -> int:
        """The largest ``max_tokens`` with which a request can be served; at least 1. Raises ``NotReady``."""
        if (scheduler := self._replica.scheduler) is None:
            raise NotReady(self.readiness.reason)
        return scheduler.memory.limits.max_output_tokens(num_prompt_tokens, num_choices)

    def check(self, request: Request) -> None:
        """Raises what ``generate`` would raise for this request now; changes nothing."""
        scheduler = self._replica.scheduler
        if self._draining or scheduler is None:
            raise NotReady(self.readiness.reason)
        scheduler.memory.limits.check(request)
        if self._replica.progress.stalled_s(has_work=self._replica.num_open > 0) > self._config.patience_s:
            raise NotReady(self.readiness.reason)
        self._require_room([request])
        if self._outputs.find(request.request_id) is not None:
            raise RequestRefused(f"request id {request.request_id!r} is in use", param="request_id")

    def check_together(self, requests: Sequence[Request]) -> None:
        """Raises ``RequestRefused`` if the requests of a call can never wait together, ``QueueFull`` if not now."""
        if excess := self._config.queue.excess(requests):
            raise RequestRefused(f"prompt: {excess}", param="prompt")
        self._require_room(requests)

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """Accepts the request at once and yields what it produces.

        Closing the generator early aborts the request and frees its blocks.

        Raises:
            RequestRefused: A value is bad, or the request can never fit.
            QueueFull: Too many requests wait.
            NotReady: It is draining, or tokens could not advance for a while.

        """
        self.check(request)
        if request.stop.max_tokens == 0 and request.num_prompt_logprobs is None:
            return _nothing(request.num_choices)
        return self._replica.submit(request)

    def _require_room(self, requests: Sequence[Request]) -> None:
        waiting = self._replica.scheduler.waiting if self._replica.scheduler else ()
        if overflow := self._config.queue.overflow(waiting, requests):
            raise QueueFull(overflow.message, retry_after_s=self._replica.flow.seconds_for(overflow.num_groups))

    def abort(self, request_id: RequestId) -> bool:
        """Ends a request with ``FinishReason.ABORT``; ``False`` if there is none of that id."""
        group = self._outputs.find(request_id)
        if group is None:
            return False
        self._replica.abort(group)
        return True


def _nothing(num_choices: int) -> RequestStream:
    """What a request for no tokens produces."""
    stream = RequestStream(lambda: None)
    for choice_index in range(num_choices):
        stream.put(OutputDelta(choice_index, "", (), FinishReason.LENGTH))
    stream.end()
    return stream
