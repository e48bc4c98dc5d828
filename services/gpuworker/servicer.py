"""The gRPC face of the worker: translate, call, translate."""

import asyncio
import logging
from concurrent.futures import Executor as Threads
from dataclasses import dataclass

import grpc
import grpc.aio

from gpuworker.engine import Engine, StepAnswer
from gpuworker.v1 import gpuworker_pb2 as pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerServicer
from gpuworker.wire import answer_to_wire, description_to_wire, step_from_wire, view_to_wire

logger = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[pb.WorkerRequest, pb.WorkerResponse]
_Answer = asyncio.Future[pb.WorkerResponse] | asyncio.Future[StepAnswer]
_Answers = asyncio.Queue[_Answer | None]

_MAX_QUEUED = 2
"""Messages that are read before earlier ones are answered."""


@dataclass(frozen=True, slots=True)
class _End:
    """Why a stream is ended."""

    status: grpc.StatusCode
    message: str


class Servicer(GPUWorkerServicer):
    """Every message gets one answer, in order. The engine is touched by ``compute`` only, a pool of one thread.

    Steps are read ahead, so that the thread goes from one to the next without waiting for anybody. A step whose client
    goes away is still computed; its answer is stored and a repeated step gets it.
    """

    def __init__(self, engine: Engine, compute: Threads) -> None:
        self._engine = engine
        self._compute = compute
        self._session = 0  # of the stream that attached last
        self._draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drain(self) -> None:
        """Ends every stream once the steps in hand are answered."""
        if not self._draining.done():
            self._draining.set_result(None)

    async def Run(self, _requests: object, context: _Context) -> None:  # type: ignore[override]  # noqa: N802
        """See the proto. Streams may follow one another; what the worker knows outlives them."""
        answers: _Answers = asyncio.Queue(_MAX_QUEUED)
        writing = asyncio.create_task(_write(answers, context))
        try:
            end = await self._read_all(context, answers)
            await answers.put(None)
            await writing
        finally:
            writing.cancel()
        if end is not None:
            await context.abort(end.status, end.message)

    async def Inspect(  # noqa: N802 - the name is the wire's
        self, _request: pb.InspectRequest, _context: grpc.aio.ServicerContext[pb.InspectRequest, pb.WorkerView]
    ) -> pb.WorkerView:
        """Waits for the steps in hand, and copies the tables before the next one."""
        view = await asyncio.get_running_loop().run_in_executor(self._compute, self._engine.view)
        return view_to_wire(view)

    async def _read_all(self, context: _Context, answers: _Answers) -> _End | None:
        """Has the engine answer every message; ``None`` at the end of the stream."""
        session = 0
        while (request := await self._read(context)) is not None:
            if isinstance(request, _End):
                return request
            kind = request.WhichOneof("kind")
            if kind == "attach":
                self._session += 1
                session = self._session
                await answers.put(self._attach(request.attach))
            elif kind is None or not session:
                return _End(grpc.StatusCode.FAILED_PRECONDITION, f"attach was expected first, but {kind} came")
            elif session != self._session:
                return _End(grpc.StatusCode.FAILED_PRECONDITION, "another stream attached after this one")
            else:
                await answers.put(self._execute(request.step))
        return None

    async def _read(self, context: _Context) -> pb.WorkerRequest | _End | None:
        """The next message; ``None`` at the end of the stream, and an ``_End`` when draining begins."""
        read = asyncio.ensure_future(context.read())
        await asyncio.wait((read, self._draining), return_when=asyncio.FIRST_COMPLETED)
        if not read.done():
            read.cancel()
            return _End(grpc.StatusCode.UNAVAILABLE, "the worker shuts down")
        request = read.result()
        return request if isinstance(request, pb.WorkerRequest) else None

    def _attach(self, message: pb.Attach) -> asyncio.Future[pb.WorkerResponse]:
        def attach() -> pb.WorkerResponse:
            self._engine.attach(forget_sequences=message.forget_sequences)
            logger.info("a client attached (forget_sequences=%s)", message.forget_sequences)
            return description_to_wire(self._engine)

        return asyncio.get_running_loop().run_in_executor(self._compute, attach)

    def _execute(self, message: pb.Step) -> asyncio.Future[StepAnswer]:
        """The step is translated here, while the thread computes the one before; and so is its answer."""
        return asyncio.get_running_loop().run_in_executor(self._compute, self._engine.execute, step_from_wire(message))


async def _write(answers: _Answers, context: _Context) -> None:
    while (future := await answers.get()) is not None:
        answer = await asyncio.shield(future)
        await context.write(answer if isinstance(answer, pb.WorkerResponse) else answer_to_wire(answer))
