"""Where two states of one pool differ, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import fields

from kvmanager.core.block_pool import BlockPoolSnapshot
from kvmanager.core.block_space import BlockSpaceSnapshot, TableSnapshot
from kvmanager.core.plan import SequenceId
from kvmanager.core.pool_state import PoolStateSnapshot

MAX_NAMED = 3
"""Differing entries of one field that are named; the others are counted."""


def differences(ours: PoolStateSnapshot, theirs: PoolStateSnapshot) -> list[str]:
    """What ``theirs`` has otherwise than ``ours``; empty if every field is equal."""
    found = []
    if ours.epoch != theirs.epoch:
        found.append(f"epoch is {theirs.epoch}, not {ours.epoch}")
    if ours.last_grant != theirs.last_grant:
        found.append("the stored answer to the last step differs")
    if ours.counters != theirs.counters:
        found.append(f"counters are {theirs.counters}, not {ours.counters}")
    if ours.space is None or theirs.space is None:
        if ours.space is not theirs.space:
            found.append("only one of both was ever opened")
        return found
    return [*found, *_space_differences(ours.space, theirs.space)]


def _space_differences(ours: BlockSpaceSnapshot, theirs: BlockSpaceSnapshot) -> Iterator[str]:
    if ours.shape != theirs.shape:
        yield f"the shape is {theirs.shape}, not {ours.shape}"
    if ours.last_step_id != theirs.last_step_id:
        yield f"the last step is {theirs.last_step_id}, not {ours.last_step_id}"
    yield from _pool_differences("device", ours.device, theirs.device)
    yield from _pool_differences("host", ours.host, theirs.host)
    yield from _column_differences("device block", "hash", ours.device_hashes, theirs.device_hashes)
    yield from _column_differences("device block", "parent", ours.device_parents, theirs.device_parents)
    if ours.host_hashes != theirs.host_hashes:
        yield "hashes of host blocks differ"
    if list(ours.pins) != list(theirs.pins):
        yield f"{len(theirs.pins)} pins, which are not the {len(ours.pins)} known ones"
    yield from _table_differences("device", ours.device_tables, theirs.device_tables)
    yield from _table_differences("host", ours.host_tables, theirs.host_tables)


def _pool_differences(tier: str, ours: BlockPoolSnapshot, theirs: BlockPoolSnapshot) -> Iterator[str]:
    words = {"following": "next in the free queue", "preceding": "before it in the free queue"}
    for name in [field.name for field in fields(BlockPoolSnapshot) if field.name != "num_free"]:
        column = (getattr(ours, name), getattr(theirs, name))
        yield from _column_differences(f"{tier} block", words.get(name, name.replace("_", " ")), *column)
    if ours.num_free != theirs.num_free:
        yield f"{tier}: {theirs.num_free} blocks are free, not {ours.num_free}"


def _column_differences(what: str, name: str, ours: Sequence[object], theirs: Sequence[object]) -> Iterator[str]:
    if ours == theirs:
        return
    if len(ours) != len(theirs):
        yield f"{what}s: {len(theirs)} entries of {name}, not {len(ours)}"
        return
    unequal = [index for index, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]]
    for index in unequal[:MAX_NAMED]:
        yield f"{what} {index}: {name} is {_shown(theirs[index])}, not {_shown(ours[index])}"
    if len(unequal) > MAX_NAMED:
        yield f"{what}s: {name} differs in {len(unequal) - MAX_NAMED} more"


def _table_differences(tier: str, ours: Sequence[TableSnapshot], theirs: Sequence[TableSnapshot]) -> Iterator[str]:
    known, other = _by_id(ours), _by_id(theirs)
    unequal = [sequence_id for sequence_id in {**known, **other} if known.get(sequence_id) != other.get(sequence_id)]
    for sequence_id in unequal[:MAX_NAMED]:
        yield f"{tier} sequence {sequence_id}: {_shown(other.get(sequence_id))}, not {_shown(known.get(sequence_id))}"
    if len(unequal) > MAX_NAMED:
        yield f"{tier}: the tables of {len(unequal) - MAX_NAMED} more sequences differ"
    if not unequal and list(known) != list(other):
        yield f"{tier}: the sequences came in another order"


def _by_id(tables: Sequence[TableSnapshot]) -> dict[SequenceId, TableSnapshot]:
    return {table.sequence_id: table for table in tables}


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bytes):
        return value.hex()[:16]
    if isinstance(value, TableSnapshot):
        return f"{value.num_slots} slots in blocks {list(value.blocks[:16])}"
    return str(value)
