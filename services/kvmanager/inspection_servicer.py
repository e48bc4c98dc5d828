"""The ``Inspector`` service on the wire: translate, call, translate."""

import math
from collections.abc import Awaitable
from typing import Any, TypeVar

from grpc import aio

from kvmanager.adapters import inspection_messages as messages
from kvmanager.core.history import NUM_REMEMBERED_STEPS
from kvmanager.core.inspection import MAX_CELLS, BlockQuery, BlockState
from kvmanager.core.plan import PrefixHash, SequenceId
from kvmanager.errors import KVManagerError, MalformedPlan
from kvmanager.inspector import Inspector
from kvmanager.servicer import end_call
from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1 import inspection_pb2_grpc

T = TypeVar("T")
Context = aio.ServicerContext[Any, Any]

_DEFAULT_STEPS = 20


# ruff: noqa: N802 - names and promises are those of the proto
class InspectorServicer(inspection_pb2_grpc.InspectorServicer):
    """Serves ``Inspector``. Errors end a call with a status that says what was wrong."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    async def ListPools(self, request: pb.ListPoolsRequest, context: Context) -> pb.ListPoolsResponse:  # noqa: ARG002
        facts = await _answer(context, self._inspector.pools())
        pools = [messages.pool_message(pool) for pool in facts]
        return pb.ListPoolsResponse(instance=self._inspector.instance, pools=pools)

    async def GetMap(self, request: pb.GetMapRequest, context: Context) -> pb.PoolMap:
        async def answer() -> pb.PoolMap:
            num_cells = _num_cells(request.num_cells)
            return messages.map_message(
                await self._inspector.map(request.pool_id, messages.tier_of(request.tier), num_cells)
            )

        return await _answer(context, answer())

    async def ListBlocks(self, request: pb.ListBlocksRequest, context: Context) -> pb.ListBlocksResponse:
        async def answer() -> pb.ListBlocksResponse:
            query = messages.query_of(request)
            return messages.blocks_message(await self._inspector.blocks(request.pool_id, query), query.tier)

        return await _answer(context, answer())

    async def GetSequence(self, request: pb.GetSequenceRequest, context: Context) -> pb.SequenceTable:
        sequence_id = SequenceId(request.sequence_id)
        return messages.sequence_message(
            *await _answer(context, self._inspector.sequence(request.pool_id, sequence_id))
        )

    async def ListTables(self, request: pb.ListTablesRequest, context: Context) -> pb.Tables:
        return messages.tables_message(await _answer(context, self._inspector.tables(request.pool_id)))

    async def ListSharing(self, request: pb.ListSharingRequest, context: Context) -> pb.ListSharingResponse:
        async def answer() -> pb.ListSharingResponse:
            page_size = messages.page_size_of(request.page_size)
            query = BlockQuery(state=BlockState.SHARED, start=request.start_block_id, page_size=page_size)
            return messages.sharing_message(await self._inspector.sharing(request.pool_id, query))

        return await _answer(context, answer())

    async def ListPrefixes(self, request: pb.ListPrefixesRequest, context: Context) -> pb.ListPrefixesResponse:
        async def answer() -> pb.ListPrefixesResponse:
            page_size = messages.page_size_of(request.page_size)
            prefix_hash = messages.hash_of(request.hash) if request.hash else PrefixHash(b"")
            view = await self._inspector.prefixes(request.pool_id, prefix_hash, request.start_block_id, page_size)
            return messages.prefixes_message(view)

        return await _answer(context, answer())

    async def ListSteps(self, request: pb.ListStepsRequest, context: Context) -> pb.ListStepsResponse:
        count = min(request.count or _DEFAULT_STEPS, NUM_REMEMBERED_STEPS)
        return messages.steps_message(await _answer(context, self._inspector.steps(request.pool_id, count)))

    async def Replay(self, request: pb.ReplayRequest, context: Context) -> pb.ReplayResponse:
        async def answer() -> pb.ReplayResponse:
            num_cells = _num_cells(request.num_cells)
            return messages.replay_message(await self._inspector.replay(request.pool_id, request.step_id, num_cells))

        return await _answer(context, answer())

    async def Audit(self, request: pb.AuditRequest, context: Context) -> pb.AuditResponse:
        return messages.audit_message(await _answer(context, self._inspector.audit(request.pool_id)))

    async def ResetPrefixCache(
        self, request: pb.ResetPrefixCacheRequest, context: Context
    ) -> pb.ResetPrefixCacheResponse:
        return messages.reset_message(await _answer(context, self._inspector.reset_prefix_cache(request.pool_id)))

    async def ListPins(self, request: pb.ListPinsRequest, context: Context) -> pb.ListPinsResponse:
        return messages.pins_message(await _answer(context, self._inspector.pins(request.pool_id)))

    async def Pin(self, request: pb.PinRequest, context: Context) -> pb.PinResponse:
        async def answer() -> pb.PinResponse:
            prefix_hash, ttl_s = messages.hash_of(request.hash), _ttl(request.ttl_seconds)
            refused = await self._inspector.pin(request.pool_id, prefix_hash, ttl_s)
            view = await self._inspector.pins(request.pool_id)
            num_blocks = next((len(pin.blocks) for pin in view.pins if pin.prefix_hash == prefix_hash), 0)
            return pb.PinResponse(
                num_blocks=num_blocks,
                num_pinned_blocks=view.num_pinned_blocks,
                pin_budget_blocks=view.pin_budget_blocks,
                refusal=refused.reason if refused is not None else "",
                unknown=refused is not None and refused.is_unknown,
            )

        return await _answer(context, answer())

    async def Unpin(self, request: pb.UnpinRequest, context: Context) -> pb.UnpinResponse:
        async def answer() -> pb.UnpinResponse:
            was_pinned = await self._inspector.unpin(request.pool_id, messages.hash_of(request.hash))
            view = await self._inspector.pins(request.pool_id)
            return pb.UnpinResponse(was_pinned=was_pinned, num_pinned_blocks=view.num_pinned_blocks)

        return await _answer(context, answer())


async def _answer(context: Context, work: Awaitable[T]) -> T:
    try:
        return await work
    except KVManagerError as error:
        await end_call(context, error)


def _num_cells(number: int) -> int:
    if number > MAX_CELLS:
        raise MalformedPlan(f"num_cells: {number} must be at most {MAX_CELLS}")
    return number


def _ttl(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise MalformedPlan(f"ttl_seconds: {seconds} must be 0 or more, and finite")
    return seconds
