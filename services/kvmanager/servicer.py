"""The wire: translate, call, translate."""

from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from typing import NoReturn

import grpc
from grpc import aio

from kvmanager.adapters import protobuf
from kvmanager.adapters.state_codec import plan_entry
from kvmanager.errors import (
    BrokenPromise,
    JournalCorrupt,
    JournalUnavailable,
    KVManagerError,
    MalformedPlan,
    OutOfReach,
    PoolNotOpen,
    PoolOwnedElsewhere,
    UnknownToPool,
)
from kvmanager.pool import Pool
from kvmanager.pools import Pools
from kvmanager.v1 import kvmanager_pb2 as pb
from kvmanager.v1 import kvmanager_pb2_grpc

_STATUS: dict[type[KVManagerError], grpc.StatusCode] = {
    BrokenPromise: grpc.StatusCode.FAILED_PRECONDITION,
    MalformedPlan: grpc.StatusCode.INVALID_ARGUMENT,
    UnknownToPool: grpc.StatusCode.NOT_FOUND,
    OutOfReach: grpc.StatusCode.OUT_OF_RANGE,
    JournalUnavailable: grpc.StatusCode.UNAVAILABLE,
    PoolOwnedElsewhere: grpc.StatusCode.UNAVAILABLE,
    JournalCorrupt: grpc.StatusCode.DATA_LOSS,
}


class KVManagerServicer(kvmanager_pb2_grpc.KVManagerServicer):
    """Serves ``Arbitrate``. A broken promise ends the stream with a status that says which one; nothing is changed."""

    def __init__(self, pools: Pools, *, watermark: float) -> None:
        self._pools = pools
        self._watermark = watermark

    async def Arbitrate(  # noqa: N802 - the name is the wire's
        self, request_iterator: AsyncIterable[pb.PoolRequest], context: aio.ServicerContext[object, object]
    ) -> AsyncIterator[pb.PoolResponse]:
        """Answers each message of one caller, in order."""
        caller = Caller(self._pools, self._watermark)
        try:
            async for request in request_iterator:
                yield await caller.answer(request)
        except KVManagerError as error:
            await end_call(context, error)


class Caller:
    """One stream: the pool that it opened, and its session there."""

    def __init__(self, pools: Pools, watermark: float) -> None:
        self._pools = pools
        self._watermark = watermark
        self._pool: Pool | None = None
        self._session = 0

    async def answer(self, request: pb.PoolRequest) -> pb.PoolResponse:
        """Opens the pool or grants a plan. Raises ``KVManagerError``."""
        kind = request.WhichOneof("kind")
        if kind == "plan":
            return await self._grant(request.plan)
        if kind == "open":
            return await self._open(request.open)
        raise MalformedPlan("a request must have the field open or plan")

    async def _open(self, message: pb.OpenPool) -> pb.PoolResponse:
        opening = protobuf.opening_of(message, self._watermark)
        self._pool, self._session, opened = await self._pools.open(message.pool_id, opening)
        return pb.PoolResponse(opened=protobuf.opened_message(opened))

    async def _grant(self, message: pb.Plan) -> pb.PoolResponse:
        if self._pool is None:
            raise PoolNotOpen(f"step {message.step_id}: the first message of a stream must open the pool")
        grant = await self._pool.grant(self._session, protobuf.plan_of(message), partial(plan_entry, message))
        answer = protobuf.grant_message(grant)
        answer.journal_seconds = self._pool.journal_s
        return pb.PoolResponse(grant=answer)


async def end_call(context: aio.ServicerContext[object, object], error: KVManagerError) -> NoReturn:
    """Ends a call with the status of an error."""
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            await context.abort(status, str(error))
    await context.abort(grpc.StatusCode.INTERNAL, str(error))
