"""``python -m kvmanager.baseline``: a kvmanager that keeps memory as the paper's Orca baselines do (§6.1).

For comparisons only. It speaks ``Arbitrate`` alone, has no journal (a restart forgets everything) and cannot be looked
into; where its slots are is written to a file after each step.
"""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kvmanager.adapters import protobuf
from kvmanager.core.plan import Grant, PoolShape
from kvmanager.core.spaces.contiguous import ContiguousShape
from kvmanager.core.spaces.memory_space import Estimate, Occupancy
from kvmanager.core.spaces.served import KnownOutputs, ServedContiguousSpace
from kvmanager.errors import KVManagerError, MalformedPlan, PoolNotOpen
from kvmanager.pool import PoolOpened
from kvmanager.servicer import end_call
from kvmanager.v1 import inspection_pb2, inspection_pb2_grpc, kvmanager_pb2_grpc
from kvmanager.v1 import kvmanager_pb2 as pb

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is reserved, and where the occupancy is told."""

    estimate: Estimate
    known: KnownOutputs
    occupancy_file: Path

    def space(self, shape: PoolShape) -> ServedContiguousSpace:
        """An empty pool."""
        contiguous = ContiguousShape(shape.block_size, shape.num_device_blocks, self.known.max_model_len, self.estimate)
        return ServedContiguousSpace(contiguous, self.known)

    def tell(self, occupancy: Occupancy) -> None:
        """Replaces what is told, in one move."""
        fresh = self.occupancy_file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(occupancy)) + "\n")
        fresh.replace(self.occupancy_file)


class BaselineServicer(kvmanager_pb2_grpc.KVManagerServicer):
    """Every opening is that of an empty pool."""

    def __init__(self, baseline: Baseline) -> None:
        self._baseline = baseline

    async def Arbitrate(  # noqa: N802 - the name is the wire's
        self, request_iterator: AsyncIterable[pb.PoolRequest], context: aio.ServicerContext[object, object]
    ) -> AsyncIterator[pb.PoolResponse]:
        """Answers each message of one caller, in order."""
        caller = _Caller(self._baseline)
        try:
            async for request in request_iterator:
                yield caller.answer(request)
        except KVManagerError as error:
            await end_call(context, error)


class NoPools(inspection_pb2_grpc.InspectorServicer):
    """Has no pool to look into; without an answer the scheduler's metrics would lack everything."""

    async def ListPools(  # noqa: N802 - the name is the wire's
        self, _request: inspection_pb2.ListPoolsRequest, _context: aio.ServicerContext[object, object]
    ) -> inspection_pb2.ListPoolsResponse:
        """None."""
        return inspection_pb2.ListPoolsResponse()


class _Caller:
    def __init__(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._space: ServedContiguousSpace | None = None
        self._last_grant: Grant | None = None

    def answer(self, request: pb.PoolRequest) -> pb.PoolResponse:
        kind = request.WhichOneof("kind")
        if kind == "open":
            return self._open(request.open)
        if kind == "plan":
            return self._grant(request.plan)
        raise MalformedPlan("a request must have the field open or plan")

    def _open(self, message: pb.OpenPool) -> pb.PoolResponse:
        opening = protobuf.opening_of(message, watermark=0.0)
        self._space = self._baseline.space(opening.shape)
        self._last_grant = None
        opened = PoolOpened(opening.epoch, last_step_id=0, watermark_blocks=0, restored=False)
        return pb.PoolResponse(opened=protobuf.opened_message(opened))

    def _grant(self, message: pb.Plan) -> pb.PoolResponse:
        if self._space is None:
            raise PoolNotOpen(f"step {message.step_id}: the first message of a stream must open the pool")
        if self._last_grant is None or self._last_grant.step_id != message.step_id:
            self._last_grant = self._space.apply(protobuf.plan_of(message))
            self._baseline.tell(self._space.occupancy())
        return pb.PoolResponse(grant=protobuf.grant_message(self._last_grant))


@app.command()
def baseline(
    listen: Annotated[str, typer.Option(help="gRPC address: unix:/path.sock or host:port.")],
    estimate: Annotated[Estimate, typer.Option(help="How many output tokens are reserved for.")],
    max_model_len: Annotated[int, typer.Option(min=1, help="Tokens of prompt and output together.")],
    outputs: Annotated[
        Path, typer.Option(exists=True, help="JSON object: output tokens by the number of prompt tokens.")
    ],
    occupancy: Annotated[Path, typer.Option(help="File that tells after each step where the slots are, as JSON.")],
) -> None:
    """Keeps KV memory in contiguous chunks, reserved when a request enters. For comparisons only."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    known = {int(num_prompt): num_output for num_prompt, num_output in json.loads(outputs.read_text()).items()}
    asyncio.run(_serve(listen, Baseline(estimate, KnownOutputs(known, max_model_len), occupancy)))


async def _serve(listen: str, kept: Baseline) -> None:
    """Serves until SIGTERM or SIGINT."""
    server = aio.server()
    kvmanager_pb2_grpc.add_KVManagerServicer_to_server(BaselineServicer(kept), server)
    inspector = NoPools()  # type: ignore[abstract] # what it lacks answers UNIMPLEMENTED, as generated
    inspection_pb2_grpc.add_InspectorServicer_to_server(inspector, server)
    healthy = health.aio.HealthServicer()  # type: ignore[attr-defined] # the stubs lack it
    service = pb.DESCRIPTOR.services_by_name["KVManager"].full_name
    for name in ("", service):
        await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    server.add_insecure_port(listen)
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.stop(grace=None)


if __name__ == "__main__":
    app()
