"""The scheduler's messages in the kvmanager's words and back, without a wire between them."""

from collections.abc import Sequence
from typing import cast

from kvmanager.core import plan as memory
from scheduler.core import steps as scheduling
from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.core.request import GroupId, SequenceId

_MODE_OF = {mode: memory.Preemption[mode.name] for mode in scheduling.Preemption}
_MODE_BACK = {there: here for here, there in _MODE_OF.items()}


def to_memory(plan: scheduling.Plan, *, caches_prefixes: bool) -> memory.Plan:
    """The plan as the kvmanager reads it. Without ``caches_prefixes`` no hash reaches it, so nothing is ever a hit."""
    running, entering = plan.running, plan.entering
    return memory.Plan(
        step_id=plan.step_id,
        sealed=_sealed(plan) if caches_prefixes else memory.SealedBlocks(),
        forks=[
            memory.Fork(memory.SequenceId(parent_id), memory.SequenceId(child_id)) for parent_id, child_id in plan.forks
        ],
        released=_sequence_ids(plan.released),
        running=memory.RunningGroups(
            _group_ids(running.group_ids),
            running.num_sequences,
            [_MODE_OF[mode] for mode in running.preemptions],
            _sequence_ids(running.sequence_ids),
            running.num_new_slots,
        ),
        entering=memory.EnteringGroups(
            entering.token_budget,
            _group_ids(entering.group_ids),
            entering.num_sequences,
            _sequence_ids(entering.sequence_ids),
            entering.num_tokens,
            [_hashes(hashes) if caches_prefixes else () for hashes in entering.prefix_hashes],
        ),
    )


def to_scheduler(grant: memory.Grant) -> scheduling.Grant:
    """The grant as the scheduler reads it; the block changes are carried along unread."""
    usage = grant.usage
    return scheduling.Grant(
        step_id=grant.step_id,
        changes=scheduling.BlockChanges(grant.changes),
        usage=scheduling.PoolUsage(
            usage.num_used_device_blocks, usage.num_cached_device_blocks, usage.num_used_host_blocks
        ),
        preempted_group_ids=cast("Sequence[GroupId]", grant.preempted_group_ids),
        preempted_modes=[_MODE_BACK[mode] for mode in grant.preempted_modes],
        admitted_group_ids=cast("Sequence[GroupId]", grant.admitted_group_ids),
        admitted_sequence_ids=cast("Sequence[SequenceId]", grant.admitted_sequence_ids),
        num_present_tokens=grant.num_present_tokens,
        num_new_slots=grant.num_new_slots,
        refusal=grant.refusal,
    )


def _sealed(plan: scheduling.Plan) -> memory.SealedBlocks:
    return memory.SealedBlocks(
        _sequence_ids(plan.sealed_sequence_ids), plan.sealed_block_indexes, _hashes(plan.sealed_hashes)
    )


def _hashes(hashes: bytes) -> list[memory.PrefixHash]:
    return [memory.PrefixHash(hashes[start : start + HASH_BYTES]) for start in range(0, len(hashes), HASH_BYTES)]


def _sequence_ids(ids: Sequence[SequenceId]) -> Sequence[memory.SequenceId]:
    """The same numbers under the kvmanager's name for them."""
    return cast("Sequence[memory.SequenceId]", ids)


def _group_ids(ids: Sequence[GroupId]) -> Sequence[memory.GroupId]:
    return cast("Sequence[memory.GroupId]", ids)
