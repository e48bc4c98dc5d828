"""The kvmanager over gRPC."""

from kvmanager.v1 import kvmanager_pb2 as pb
from kvmanager.v1.kvmanager_pb2_grpc import KVManagerStub
from scheduler.adapters.grpc_stream import RequestStream
from scheduler.adapters.message_stream import MessageStream
from scheduler.core.request import GroupId, SequenceId
from scheduler.core.steps import BlockChanges, EnteringGroups, Grant, Plan, PoolUsage, Preemption, RunningGroups
from scheduler.errors import MemoryUnavailable
from scheduler.ports import PoolOpened, WorkerDescription


class MessageMemory:
    """``Memory`` by messages on a stream whose errors are ``MemoryUnavailable``."""

    def __init__(
        self,
        stream: MessageStream[pb.PoolRequest, pb.PoolResponse],
        *,
        open_timeout_s: float = 5.0,
        grant_timeout_s: float = 10.0,
    ) -> None:
        self._stream = stream
        self._open_timeout_s = open_timeout_s
        self._grant_timeout_s = grant_timeout_s

    @property
    def is_open(self) -> bool:
        """Whether the stream is up."""
        return self._stream.is_open

    async def open(self, worker: WorkerDescription, *, forget_sequences: bool) -> PoolOpened:
        """Opens the pool that ``worker`` holds."""
        request = pb.OpenPool(
            pool_id=worker.worker_id,
            epoch=worker.epoch,
            block_size=worker.block_size,
            num_device_blocks=worker.num_device_blocks,
            num_host_blocks=worker.num_host_blocks,
            forget_sequences=forget_sequences,
        )
        response = await self._stream.open(pb.PoolRequest(open=request), self._open_timeout_s)
        opened = response.opened
        return PoolOpened(opened.epoch, opened.last_step_id, opened.watermark_blocks, opened.restored)

    async def grant(self, plan: Plan) -> Grant:
        """Asks for what ``plan`` wants."""
        response = await self._stream.ask(pb.PoolRequest(plan=plan_to_wire(plan)), self._grant_timeout_s)
        return grant_from_wire(response.grant)

    async def close(self) -> None:
        """Ends the stream."""
        await self._stream.close()


class GrpcMemory(MessageMemory):
    """``Memory`` on a ``KVManager.Arbitrate`` stream."""

    def __init__(self, address: str, *, open_timeout_s: float = 5.0, grant_timeout_s: float = 10.0) -> None:
        stream: RequestStream[pb.PoolRequest, pb.PoolResponse] = RequestStream(
            address, lambda channel: KVManagerStub(channel).Arbitrate, MemoryUnavailable
        )
        super().__init__(stream, open_timeout_s=open_timeout_s, grant_timeout_s=grant_timeout_s)


def plan_to_wire(plan: Plan) -> pb.Plan:
    """A plan as the kvmanager reads it."""
    return pb.Plan(
        step_id=plan.step_id,
        sealed=pb.SealedBlocks(
            sequence_ids=plan.sealed_sequence_ids, block_indexes=plan.sealed_block_indexes, hashes=plan.sealed_hashes
        ),
        forks=[pb.Fork(parent_id=parent, child_id=child) for parent, child in plan.forks],
        released=plan.released,
        running=_running_to_wire(plan.running),
        entering=_entering_to_wire(plan.entering),
    )


def grant_from_wire(grant: pb.Grant) -> Grant:
    """A grant in the scheduler's words. The block changes are carried along unread."""
    return Grant(
        step_id=grant.step_id,
        changes=BlockChanges(grant.changes),
        usage=PoolUsage(
            num_used_device_blocks=grant.usage.num_used_device_blocks,
            num_cached_device_blocks=grant.usage.num_cached_device_blocks,
            num_used_host_blocks=grant.usage.num_used_host_blocks,
        ),
        preempted_group_ids=[GroupId(group_id) for group_id in grant.preempted_group_ids],
        preempted_modes=[Preemption(mode) for mode in grant.preempted_modes],
        admitted_group_ids=[GroupId(group_id) for group_id in grant.admitted_group_ids],
        admitted_sequence_ids=[SequenceId(sequence_id) for sequence_id in grant.admitted_sequence_ids],
        num_present_tokens=list(grant.num_present_tokens),
        num_new_slots=list(grant.num_new_slots),
        refusal=grant.refusal,
        journal_s=grant.journal_seconds,
    )


_WIRE_PREEMPTION = {
    Preemption.RECOMPUTE: pb.PREEMPTION_RECOMPUTE,
    Preemption.SWAP: pb.PREEMPTION_SWAP,
}


def _running_to_wire(running: RunningGroups) -> pb.RunningGroups:
    return pb.RunningGroups(
        group_ids=running.group_ids,
        num_sequences=running.num_sequences,
        preemptions=[_WIRE_PREEMPTION[preemption] for preemption in running.preemptions],
        sequence_ids=running.sequence_ids,
        num_new_slots=running.num_new_slots,
    )


def _entering_to_wire(entering: EnteringGroups) -> pb.EnteringGroups:
    return pb.EnteringGroups(
        token_budget=entering.token_budget,
        group_ids=entering.group_ids,
        num_sequences=entering.num_sequences,
        sequence_ids=entering.sequence_ids,
        num_tokens=entering.num_tokens,
        prefix_hashes=entering.prefix_hashes,
    )
