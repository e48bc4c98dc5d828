"""``Arbitrate`` on the contiguous memory of the paper's Orca baselines (§6.1), without a journal."""

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path

from grpc import aio

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
