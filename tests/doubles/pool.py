"""The kvmanager's core in this process, without journal and wire."""

from dataclasses import fields

from kvmanager.core import plan as memory
from kvmanager.core.block_space import BlockSpaceSnapshot
from kvmanager.core.pool_state import Opening, PoolState
from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.core.steps import BlockChanges, Grant, Plan, PoolUsage, Preemption


class Pool:
    """Answers plans; checks every invariant of the memory after each."""

    def __init__(self, num_blocks: int, block_size: int, watermark: int = 0, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.state = PoolState()
        self.shape = memory.PoolShape(block_size, num_blocks, num_host_blocks, watermark)
        self.state.open(Opening(1, self.shape))

    @property
    def last_step_id(self) -> int:
        return self.state.last_step_id

    @property
    def tables(self) -> dict[int, list[int]]:
        """On both tiers."""
        snapshot: BlockSpaceSnapshot = self.state.space.snapshot()
        return {table.sequence_id: list(table.blocks) for table in (*snapshot.device_tables, *snapshot.host_tables)}

    @property
    def num_free(self) -> int:
        """On both tiers; as many as there are blocks if nobody holds any."""
        usage = self.state.space.usage
        held = usage.num_used_device_blocks + usage.num_used_host_blocks
        return self.shape.num_device_blocks + self.shape.num_host_blocks - held

    @property
    def is_idle(self) -> bool:
        return not self.tables and self.num_free == self.shape.num_device_blocks + self.shape.num_host_blocks

    def forget_sequences(self) -> None:
        self.state.open(Opening(1, self.shape, forget_sequences=True))

    def grant(self, plan: Plan) -> Grant:
        grant = self.state.stored_answer(plan.step_id) or self.state.apply(_to_memory(plan))
        assert self.state.space.check() == []
        columns = {field.name: getattr(grant, field.name) for field in fields(grant)}
        columns["preempted_modes"] = [Preemption[mode.name] for mode in grant.preempted_modes]
        usage = grant.usage
        counts = PoolUsage(usage.num_used_device_blocks, usage.num_cached_device_blocks, usage.num_used_host_blocks)
        return Grant(**columns | {"changes": BlockChanges(grant.changes), "usage": counts})


def _to_memory(plan: Plan) -> memory.Plan:
    running, entering = plan.running, plan.entering
    return memory.Plan(
        step_id=plan.step_id,
        sealed=memory.SealedBlocks(plan.sealed_sequence_ids, plan.sealed_block_indexes, _split(plan.sealed_hashes)),
        forks=[memory.Fork(parent, child) for parent, child in plan.forks],
        released=plan.released,
        running=memory.RunningGroups(
            running.group_ids,
            running.num_sequences,
            [memory.Preemption[mode.name] for mode in running.preemptions],
            running.sequence_ids,
            running.num_new_slots,
        ),
        entering=memory.EnteringGroups(
            entering.token_budget,
            entering.group_ids,
            entering.num_sequences,
            entering.sequence_ids,
            entering.num_tokens,
            [_split(hashes) for hashes in entering.prefix_hashes],
        ),
    )


def _split(hashes: bytes) -> list[memory.PrefixHash]:
    return [memory.PrefixHash(hashes[i : i + HASH_BYTES]) for i in range(0, len(hashes), HASH_BYTES)]
