"""The real kvmanager's core in the place of the pool double."""

from dataclasses import fields
from itertools import islice

from doubles.pool import Changes
from kvmanager.core import plan as memory
from kvmanager.core.block_space import BlockSpace
from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.core.steps import BlockChanges, Grant, Plan, PoolUsage, Preemption


class RealPool:
    """``PoolDouble``'s interface over a ``BlockSpace``; checks its invariants after every step."""

    def __init__(self, num_blocks: int, block_size: int, watermark: int = 0) -> None:
        self.num_blocks = num_blocks
        self.space = BlockSpace.empty(memory.PoolShape(block_size, num_blocks, 0, watermark))

    @property
    def tables(self) -> dict[int, object]:
        return {table.sequence_id: table for table in self.space.snapshot().device_tables}

    @property
    def free(self) -> range:
        return range(self.num_blocks - self.space.usage.num_used_device_blocks)

    def grant(self, plan: Plan) -> Grant:
        grant = self.space.apply(_to_memory(plan))
        self.space.check()
        columns = {field.name: getattr(grant, field.name) for field in fields(grant)}
        changes = _from_memory(grant.changes)
        usage = PoolUsage(grant.usage.num_used_device_blocks, grant.usage.num_cached_device_blocks, 0)
        columns["preempted_modes"] = [Preemption[mode.name] for mode in grant.preempted_modes]
        return Grant(**columns | {"changes": BlockChanges(changes), "usage": usage})


def _to_memory(plan: Plan) -> memory.Plan:
    running, entering = plan.running, plan.entering
    return memory.Plan(
        step_id=plan.step_id,
        sealed=memory.SealedBlocks(plan.sealed_sequence_ids, plan.sealed_block_indexes, _split(plan.sealed_hashes)),
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


def _from_memory(changes: memory.BlockChanges) -> Changes:
    block_ids = iter(changes.appended_block_ids)
    appended = zip(changes.appended_sequence_ids, changes.appended_num_blocks, strict=True)
    return Changes(
        dropped=list(changes.dropped),
        replaced=list(
            zip(changes.replaced_sequence_ids, changes.replaced_indexes, changes.replaced_block_ids, strict=True)
        ),
        appended=[(sequence_id, list(islice(block_ids, num_blocks))) for sequence_id, num_blocks in appended],
    )
