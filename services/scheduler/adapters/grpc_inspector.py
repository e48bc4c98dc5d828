"""The kvmanager's ``Inspector`` and the worker's ``Inspect`` over gRPC."""

from typing import TYPE_CHECKING

from gpuworker.v1 import gpuworker_pb2
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerStub
from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1.inspection_pb2_grpc import InspectorStub
from scheduler import inspection as view
from scheduler.adapters import inspection_messages as wire
from scheduler.adapters.grpc_peer import Peer
from scheduler.errors import Conflict, NotFound

if TYPE_CHECKING:
    from kvmanager.v1.inspection_pb2_grpc import InspectorAsyncStub

QUESTION_S = 10.0
REBUILD_S = 120.0
"""Time for answers that rebuild a pool from its journal."""

_TIERS = {"device": pb.TIER_DEVICE, "host": pb.TIER_HOST}
_STATES = {
    None: pb.BLOCK_STATE_UNSPECIFIED,
    "used": pb.BLOCK_STATE_USED,
    "shared": pb.BLOCK_STATE_SHARED,
    "cached": pb.BLOCK_STATE_CACHED,
    "free": pb.BLOCK_STATE_FREE,
    "pinned": pb.BLOCK_STATE_PINNED,
}


class GrpcPoolInspector:
    """``PoolInspector`` on a kvmanager."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)

    async def pools(self) -> view.PoolList:
        """All pools that the kvmanager owns."""
        answer = await self._peer.ask(self._stub.ListPools(pb.ListPoolsRequest(), timeout=QUESTION_S))
        return view.PoolList([wire.pool_of(pool, answer.instance) for pool in answer.pools])

    async def map(self, pool_id: str, tier: view.TierName, num_cells: int) -> view.PoolMap:
        """What each part of a tier is used for."""
        request = pb.GetMapRequest(pool_id=pool_id, tier=_TIERS[tier], num_cells=num_cells)
        return wire.map_of(await self._peer.ask(self._stub.GetMap(request, timeout=QUESTION_S)))

    async def blocks(self, pool_id: str, query: view.BlockQuery) -> view.BlockPage:
        """A page of blocks."""
        request = pb.ListBlocksRequest(
            pool_id=pool_id,
            tier=_TIERS[query.tier],
            state=_STATES[query.state],
            holder=query.holder or 0,
            start_block_id=query.start,
            page_size=query.limit,
        )
        answer = await self._peer.ask(self._stub.ListBlocks(request, timeout=QUESTION_S))
        return view.BlockPage(wire.blocks_of(answer.blocks), answer.next_block_id or None, answer.step_id)

    async def sequence(self, pool_id: str, sequence_id: int) -> view.SequenceTable:
        """A sequence's block table."""
        request = pb.GetSequenceRequest(pool_id=pool_id, sequence_id=sequence_id)
        return wire.sequence_of(await self._peer.ask(self._stub.GetSequence(request, timeout=QUESTION_S)))

    async def tables(self, pool_id: str) -> view.Tables:
        """All tables on the device."""
        answer = await self._peer.ask(self._stub.ListTables(pb.ListTablesRequest(pool_id=pool_id), timeout=QUESTION_S))
        return wire.tables_of(answer.epoch, answer.step_id, answer)

    async def sharing(self, pool_id: str, start: int, limit: int) -> view.Sharing:
        """A page of shared blocks, with the totals."""
        request = pb.ListSharingRequest(pool_id=pool_id, start_block_id=start, page_size=limit)
        answer = await self._peer.ask(self._stub.ListSharing(request, timeout=QUESTION_S))
        logical, physical = answer.num_logical_blocks, answer.num_physical_blocks
        saved = 1 - physical / logical if logical else 0.0
        blocks = wire.blocks_of(answer.blocks)
        return view.Sharing(logical, physical, saved, blocks, answer.next_block_id or None, answer.step_id)

    async def prefixes(self, pool_id: str, prefix_hash: bytes, start: int, limit: int) -> view.PrefixPage:
        """A page of the prefix tree's nodes, or the chain that ends with a hash unless it is empty."""
        request = pb.ListPrefixesRequest(pool_id=pool_id, hash=prefix_hash, start_block_id=start, page_size=limit)
        answer = await self._peer.ask(self._stub.ListPrefixes(request, timeout=QUESTION_S))
        nodes = [
            view.PrefixNode(
                hash=node.hash.hex(),
                parent_hash=node.parent_hash.hex() or None,
                block_id=node.block_id,
                reference_count=node.reference_count,
                pinned=node.pinned,
                last_used_step_id=node.last_used_step_id,
            )
            for node in answer.nodes
        ]
        return view.PrefixPage(nodes, answer.num_nodes, answer.next_block_id or None, answer.step_id)

    async def steps(self, pool_id: str, count: int) -> view.StepList:
        """The last steps, newest first."""
        request = pb.ListStepsRequest(pool_id=pool_id, count=count)
        answer = await self._peer.ask(self._stub.ListSteps(request, timeout=QUESTION_S))
        return view.StepList([wire.step_of(step) for step in answer.steps])

    async def replay(self, pool_id: str, step_id: int, num_cells: int) -> view.Replay:
        """The pool as it was after a step; 0: the last."""
        request = pb.ReplayRequest(pool_id=pool_id, step_id=step_id, num_cells=num_cells)
        answer = await self._peer.ask(self._stub.Replay(request, timeout=REBUILD_S))
        return view.Replay(
            first_step_id=answer.first_step_id,
            last_step_id=answer.last_step_id,
            step=wire.step_of(answer.step) if answer.HasField("step") else None,
            pool=wire.pool_of(answer.pool, ""),
            sequences=[wire.sequence_of(table) for table in answer.sequences],
            map=wire.map_of(answer.map),
        )

    async def audit(self, pool_id: str) -> view.Audit:
        """The kvmanager's own audit: memory and Redis."""
        answer = await self._peer.ask(self._stub.Audit(pb.AuditRequest(pool_id=pool_id), timeout=REBUILD_S))
        return view.Audit(
            pool_id=pool_id,
            step_id=answer.step_id,
            epoch=answer.epoch,
            findings=[view.Finding(wire.owner_of(finding.owner), finding.message) for finding in answer.findings],
            not_compared=[],
            num_checked_blocks=answer.num_checked_blocks,
            num_checked_sequences=answer.num_checked_sequences,
        )

    async def pins(self, pool_id: str) -> view.PinList:
        """All pins."""
        answer = await self._peer.ask(self._stub.ListPins(pb.ListPinsRequest(pool_id=pool_id), timeout=QUESTION_S))
        pins = [view.Pin(pin.hash.hex(), pin.num_blocks, pin.expires_at_ms or None) for pin in answer.pins]
        return view.PinList(pins, answer.num_pinned_blocks, answer.pin_budget_blocks)

    async def pin(self, pool_id: str, prefix_hash: bytes, ttl_s: float) -> view.Pinned:
        """Keeps a cached chain from being evicted."""
        request = pb.PinRequest(pool_id=pool_id, hash=prefix_hash, ttl_seconds=ttl_s)
        answer = await self._peer.ask(self._stub.Pin(request, timeout=QUESTION_S))
        if answer.unknown:
            raise NotFound(answer.refusal)
        if answer.refusal:
            raise Conflict(answer.refusal, code="pin_budget_exceeded")
        return view.Pinned(prefix_hash.hex(), answer.num_blocks, answer.num_pinned_blocks, answer.pin_budget_blocks)

    async def unpin(self, pool_id: str, prefix_hash: bytes) -> view.Unpinned:
        """Ends a pin."""
        request = pb.UnpinRequest(pool_id=pool_id, hash=prefix_hash)
        answer = await self._peer.ask(self._stub.Unpin(request, timeout=QUESTION_S))
        if not answer.was_pinned:
            raise NotFound(f"hash: {prefix_hash.hex()} is not pinned")
        return view.Unpinned(prefix_hash.hex(), answer.num_pinned_blocks)

    async def reset_prefix_cache(self, pool_id: str) -> view.CacheReset:
        """Forgets every cached prefix of an idle pool."""
        request = pb.ResetPrefixCacheRequest(pool_id=pool_id)
        answer = await self._peer.ask(self._stub.ResetPrefixCache(request, timeout=QUESTION_S))
        if answer.holders:
            holders = ", ".join(map(str, answer.holders))
            raise Conflict(f"{len(answer.holders)} sequences hold blocks: {holders}", code="pool_busy")
        return view.CacheReset(answer.num_forgotten_blocks, answer.num_ended_pins)

    async def close(self) -> None:
        """Ends the connection."""
        await self._peer.close()

    @property
    def _stub(self) -> "InspectorAsyncStub":
        return InspectorStub(self._peer.channel)


class GrpcWorkerInspector:
    """``WorkerInspector`` on a gpuworker."""

    def __init__(self, address: str) -> None:
        self._peer = Peer(address)

    async def tables(self) -> view.Tables:
        """The worker's own tables, as of its last step."""
        call = GPUWorkerStub(self._peer.channel).Inspect(gpuworker_pb2.InspectRequest(), timeout=QUESTION_S)
        answer = await self._peer.ask(call)
        return wire.tables_of(answer.epoch, answer.last_step_id, answer)

    async def close(self) -> None:
        """Ends the connection."""
        await self._peer.close()
