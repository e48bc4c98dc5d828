"""The kvmanager and a gpuworker as peers of a scheduler in the same process."""

import asyncio
from concurrent.futures import Executor as Threads

from gpuworker.engine import Engine
from gpuworker.v1 import gpuworker_pb2
from gpuworker.wire import answer_to_wire, description_to_wire, step_from_wire
from kvmanager.errors import BrokenPromise, MalformedPlan
from kvmanager.pools import Pools
from kvmanager.servicer import Caller
from kvmanager.v1 import kvmanager_pb2
from octavo.in_process.local_stream import LocalStream
from scheduler.adapters.grpc_memory import MessageMemory
from scheduler.adapters.grpc_worker import MessageWorker
from scheduler.errors import MemoryUnavailable, SchedulerError, StepRefused, WorkerUnavailable


def local_memory(pools: Pools, *, watermark: float) -> MessageMemory:
    """The scheduler's own adapter, with a kvmanager's pools at the other end instead of a socket."""
    stream: LocalStream[kvmanager_pb2.PoolRequest, kvmanager_pb2.PoolResponse] = LocalStream(
        lambda: Caller(pools, watermark).answer, _memory_error, MemoryUnavailable
    )
    return MessageMemory(stream)


def local_worker(engine: Engine, compute: Threads) -> MessageWorker:
    """The scheduler's own adapter, with a worker's engine at the other end; ``compute`` is the thread that it uses."""
    stream: LocalStream[gpuworker_pb2.WorkerRequest, gpuworker_pb2.WorkerResponse] = LocalStream(
        lambda: _Client(engine, compute).answer, _worker_error, WorkerUnavailable
    )
    return MessageWorker(stream)


class _Client:
    """Has the engine answer in its own thread; steps queue there, as they do behind a socket."""

    def __init__(self, engine: Engine, compute: Threads) -> None:
        self._engine = engine
        self._compute = compute

    async def answer(self, request: gpuworker_pb2.WorkerRequest) -> gpuworker_pb2.WorkerResponse:
        loop = asyncio.get_running_loop()
        if request.WhichOneof("kind") == "attach":
            return await loop.run_in_executor(self._compute, self._attach, request.attach)
        answer = await loop.run_in_executor(self._compute, self._engine.execute, step_from_wire(request.step))
        return answer_to_wire(answer)

    def _attach(self, message: gpuworker_pb2.Attach) -> gpuworker_pb2.WorkerResponse:
        self._engine.attach(forget_sequences=message.forget_sequences)
        return description_to_wire(self._engine)


def _memory_error(error: Exception) -> SchedulerError:
    """As the statuses of the kvmanager's calls are read."""
    if isinstance(error, BrokenPromise | MalformedPlan):
        return StepRefused(str(error))
    return MemoryUnavailable(f"{type(error).__name__}: {error}")


def _worker_error(error: Exception) -> SchedulerError:
    return WorkerUnavailable(f"{type(error).__name__}: {error}")
