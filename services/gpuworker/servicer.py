"""The gRPC face of the worker: translate, call, translate."""

import asyncio
import logging
from concurrent.futures import Executor as Threads

import grpc
import grpc.aio

from gpuworker.engine import Engine
from gpuworker.v1 import gpuworker_pb2 as pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerServicer
from gpuworker.wire import answer_to_wire, description_to_wire, step_from_wire, view_to_wire

logger = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[pb.WorkerRequest, pb.WorkerResponse]


class Servicer(GPUWorkerServicer):
    """Every message gets one answer, in order. The engine is touched by ``compute`` only, a pool of one thread.

    A step whose client goes away is still computed; its answer is stored and a repeated step gets it.
    """

    def __init__(self, engine: Engine, compute: Threads) -> None:
        self._engine = engine
        self._compute = compute
        self._draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def drain(self) -> None:
        """Ends every stream once the step in hand is answered."""
        if not self._draining.done():
            self._draining.set_result(None)

    async def Run(self, _requests: object, context: _Context) -> None:  # type: ignore[override]  # noqa: N802
        """See the proto. Streams may follow one another; what the worker knows outlives them."""
        attached = False
        while (request := await self._read(context)) is not None:
            kind = request.WhichOneof("kind")
            if kind is None or (kind == "step" and not attached):
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"attach was expected first, but {kind} came")
            attached = True
            answer = asyncio.get_running_loop().run_in_executor(self._compute, self._answer, request)
            await context.write(await asyncio.shield(answer))

    async def Inspect(  # noqa: N802 - the name is the wire's
        self, _request: pb.InspectRequest, _context: grpc.aio.ServicerContext[pb.InspectRequest, pb.WorkerView]
    ) -> pb.WorkerView:
        """Waits for the step in hand, and copies the tables before the next one."""
        view = await asyncio.get_running_loop().run_in_executor(self._compute, self._engine.view)
        return view_to_wire(view)

    async def _read(self, context: _Context) -> pb.WorkerRequest | None:
        """The next message; ``None`` at the end of the stream. Aborts it when draining begins."""
        read = asyncio.ensure_future(context.read())
        await asyncio.wait((read, self._draining), return_when=asyncio.FIRST_COMPLETED)
        if not read.done():
            read.cancel()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the worker shuts down")
        request = read.result()
        return request if isinstance(request, pb.WorkerRequest) else None

    def _answer(self, request: pb.WorkerRequest) -> pb.WorkerResponse:
        """Runs in the compute thread."""
        if request.HasField("attach"):
            self._engine.attach(forget_sequences=request.attach.forget_sequences)
            logger.info("a client attached (forget_sequences=%s)", request.attach.forget_sequences)
            return description_to_wire(self._engine)
        return answer_to_wire(self._engine.execute(step_from_wire(request.step)))
