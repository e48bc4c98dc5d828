"""A kvmanager's pools without the wire, on a journal store that others share."""

from functools import partial

from doubles.memory_journal import MemoryJournalStore, MemoryStore
from kvmanager.adapters.protobuf import plan_of
from kvmanager.adapters.state_codec import StateCodec, plan_entry
from kvmanager.core.plan import Grant, PoolShape
from kvmanager.core.pool_state import Opening, PoolState
from kvmanager.pool import JournalPolicy, PoolOpened
from kvmanager.pools import Pools
from kvmanager.v1 import kvmanager_pb2 as pb

OPENING = Opening(7, PoolShape(4, 8, 8, 0))


def enter(step_id: int, num_tokens: int = 6, sequence_id: int = 1, *waiting: int) -> pb.Plan:
    """A prompt enters; behind it others wait that can never fit."""
    ids = [sequence_id, *waiting]
    return pb.Plan(
        step_id=step_id,
        entering=pb.EnteringGroups(
            token_budget=1000,
            group_ids=ids,
            num_sequences=[1] * len(ids),
            sequence_ids=ids,
            num_tokens=[num_tokens, *(1000 for _ in waiting)],
            prefix_hashes=[b"", *(bytes(32 * 250) for _ in waiting)],
        ),
    )


def decode(step_id: int, sequence_id: int = 1) -> pb.Plan:
    """One more slot for a sequence."""
    return pb.Plan(
        step_id=step_id,
        running=pb.RunningGroups(
            group_ids=[sequence_id],
            num_sequences=[1],
            preemptions=[pb.PREEMPTION_RECOMPUTE],
            sequence_ids=[sequence_id],
            num_new_slots=[1],
        ),
    )


class Manager:
    """One instance, and the one stream that talks to it."""

    def __init__(self, store: MemoryStore, name: str = "a", *, snapshot_interval: int = 1000) -> None:
        policy = JournalPolicy(patience_s=0.2, snapshot_interval=snapshot_interval)
        self.pools = Pools(MemoryJournalStore(store, instance=name, lease_s=60), StateCodec(), policy)

    async def open(self, opening: Opening = OPENING) -> PoolOpened:
        self.pool, self.session, opened = await self.pools.open("w", opening)
        return opened

    async def step(self, message: pb.Plan) -> Grant:
        return await self.pool.grant(self.session, plan_of(message), partial(plan_entry, message))

    @property
    def state(self) -> PoolState:
        return self.pool.replica.state
