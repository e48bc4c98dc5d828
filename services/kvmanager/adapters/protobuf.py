"""Messages of ``kvmanager.v1`` to the core's values and back."""

from collections.abc import Sequence

from kvmanager.core.plan import (
    HASH_BYTES,
    BlockChanges,
    BlockId,
    EnteringGroups,
    Fork,
    Grant,
    GroupId,
    Plan,
    PoolShape,
    PoolUsage,
    Preemption,
    PrefixHash,
    RunningGroups,
    SealedBlocks,
    SequenceId,
)
from kvmanager.core.pool_state import Opening
from kvmanager.errors import MalformedPlan
from kvmanager.pool import PoolOpened
from kvmanager.v1 import kvmanager_pb2 as pb

_PREEMPTION = {pb.PREEMPTION_RECOMPUTE: Preemption.RECOMPUTE, pb.PREEMPTION_SWAP: Preemption.SWAP}
PREEMPTION_NUMBER = {preemption: number for number, preemption in _PREEMPTION.items()}


# --- Requests ---


def opening_of(message: pb.OpenPool, watermark: float) -> Opening:
    """The opening; ``watermark`` is the share of the device blocks that entering groups leave free."""
    for field in ("block_size", "num_device_blocks"):
        if getattr(message, field) < 1:
            raise MalformedPlan(f"open.{field}: {getattr(message, field)} must be at least 1")
    if not message.pool_id:
        raise MalformedPlan("open.pool_id: must not be empty")
    shape = PoolShape(
        block_size=message.block_size,
        num_device_blocks=message.num_device_blocks,
        num_host_blocks=message.num_host_blocks,
        watermark_blocks=int(watermark * message.num_device_blocks),
    )
    return Opening(message.epoch, shape, message.forget_sequences)


def plan_of(message: pb.Plan) -> Plan:
    """The plan. Raises ``MalformedPlan`` for what the core's values cannot express."""
    return Plan(
        step_id=message.step_id,
        sealed=_sealed_of(message.sealed) if message.HasField("sealed") else SealedBlocks(),
        forks=[_fork_of(fork) for fork in message.forks],
        released=[SequenceId(sequence_id) for sequence_id in message.released],
        running=_running_of(message.running) if message.HasField("running") else RunningGroups(),
        entering=_entering_of(message.entering) if message.HasField("entering") else EnteringGroups(),
    )


def _fork_of(message: pb.Fork) -> Fork:
    return Fork(SequenceId(message.parent_id), SequenceId(message.child_id))


def _sealed_of(message: pb.SealedBlocks) -> SealedBlocks:
    return SealedBlocks(
        _sequence_ids(message.sequence_ids), _numbers(message.block_indexes), _hashes("sealed.hashes", message.hashes)
    )


def _running_of(message: pb.RunningGroups) -> RunningGroups:
    try:
        preemptions = list(map(_PREEMPTION.__getitem__, message.preemptions[:]))
    except KeyError as error:
        raise MalformedPlan(f"running.preemptions: {error} is neither RECOMPUTE (1) nor SWAP (2)") from error
    return RunningGroups(
        group_ids=_group_ids(message.group_ids),
        num_sequences=_numbers(message.num_sequences),
        preemptions=preemptions,
        sequence_ids=_sequence_ids(message.sequence_ids),
        num_new_slots=_numbers(message.num_new_slots),
    )


def _entering_of(message: pb.EnteringGroups) -> EnteringGroups:
    return EnteringGroups(
        token_budget=message.token_budget,
        group_ids=_group_ids(message.group_ids),
        num_sequences=_numbers(message.num_sequences),
        sequence_ids=_sequence_ids(message.sequence_ids),
        num_tokens=_numbers(message.num_tokens),
        prefix_hashes=[_hashes("entering.prefix_hashes", hashes) for hashes in message.prefix_hashes],
    )


def _hashes(field: str, joined: bytes) -> list[PrefixHash]:
    if len(joined) % HASH_BYTES:
        raise MalformedPlan(f"{field}: {len(joined)} bytes are not a multiple of {HASH_BYTES}")
    return [PrefixHash(joined[start : start + HASH_BYTES]) for start in range(0, len(joined), HASH_BYTES)]


# A slice of a column is a list, and is made a third faster than by ``list``.


def _numbers(column: Sequence[int]) -> Sequence[int]:
    return column[:]


def _sequence_ids(column: Sequence[int]) -> Sequence[SequenceId]:
    return column[:]  # type: ignore[return-value]


def _group_ids(column: Sequence[int]) -> Sequence[GroupId]:
    return column[:]  # type: ignore[return-value]


# --- Answers ---


def opened_message(opened: PoolOpened) -> pb.PoolOpened:
    """The answer to an opening."""
    return pb.PoolOpened(
        epoch=opened.epoch,
        last_step_id=opened.last_step_id,
        watermark_blocks=opened.watermark_blocks,
        restored=opened.restored,
    )


def grant_message(grant: Grant) -> pb.Grant:
    """The answer to a plan."""
    usage = grant.usage
    return pb.Grant(
        step_id=grant.step_id,
        preempted_group_ids=grant.preempted_group_ids,
        preempted_modes=[PREEMPTION_NUMBER[mode] for mode in grant.preempted_modes],
        admitted_group_ids=grant.admitted_group_ids,
        admitted_sequence_ids=grant.admitted_sequence_ids,
        num_present_tokens=grant.num_present_tokens,
        num_new_slots=grant.num_new_slots,
        changes=_changes_message(grant.changes),
        usage=pb.PoolUsage(
            num_used_device_blocks=usage.num_used_device_blocks,
            num_cached_device_blocks=usage.num_cached_device_blocks,
            num_used_host_blocks=usage.num_used_host_blocks,
        ),
        refusal=grant.refusal,
    )


def _changes_message(changes: BlockChanges) -> pb.BlockChanges:
    return pb.BlockChanges(
        forks=[pb.Fork(parent_id=fork.parent_id, child_id=fork.child_id) for fork in changes.forks],
        dropped=changes.dropped,
        replaced_sequence_ids=changes.replaced_sequence_ids,
        replaced_indexes=changes.replaced_indexes,
        replaced_block_ids=changes.replaced_block_ids,
        appended_sequence_ids=changes.appended_sequence_ids,
        appended_num_blocks=changes.appended_num_blocks,
        appended_block_ids=changes.appended_block_ids,
        swap_outs=changes.swap_outs,
        swap_ins=changes.swap_ins,
        copies=changes.copies,
    )


# --- Answers that were written down ---


def grant_of(message: pb.Grant) -> Grant:
    """The grant that ``grant_message`` was given."""
    usage = message.usage
    return Grant(
        step_id=message.step_id,
        preempted_group_ids=_group_ids(message.preempted_group_ids),
        preempted_modes=[_PREEMPTION[mode] for mode in message.preempted_modes],
        admitted_group_ids=_group_ids(message.admitted_group_ids),
        admitted_sequence_ids=_sequence_ids(message.admitted_sequence_ids),
        num_present_tokens=_numbers(message.num_present_tokens),
        num_new_slots=_numbers(message.num_new_slots),
        changes=_changes_of(message.changes),
        usage=PoolUsage(usage.num_used_device_blocks, usage.num_cached_device_blocks, usage.num_used_host_blocks),
        refusal=message.refusal,
    )


def _changes_of(message: pb.BlockChanges) -> BlockChanges:
    return BlockChanges(
        forks=[_fork_of(fork) for fork in message.forks],
        dropped=_sequence_ids(message.dropped),
        replaced_sequence_ids=_sequence_ids(message.replaced_sequence_ids),
        replaced_indexes=_numbers(message.replaced_indexes),
        replaced_block_ids=_block_ids(message.replaced_block_ids),
        appended_sequence_ids=_sequence_ids(message.appended_sequence_ids),
        appended_num_blocks=_numbers(message.appended_num_blocks),
        appended_block_ids=_block_ids(message.appended_block_ids),
        swap_outs=_numbers(message.swap_outs),
        swap_ins=_numbers(message.swap_ins),
        copies=_numbers(message.copies),
    )


def _block_ids(column: Sequence[int]) -> Sequence[BlockId]:
    return column[:]  # type: ignore[return-value]
