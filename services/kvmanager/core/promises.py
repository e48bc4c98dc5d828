"""What a plan must keep to. Checked whole before anything is changed."""

from collections.abc import Collection, Sized

from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.host_tier import HostTier
from kvmanager.core.plan import HASH_BYTES, EnteringGroups, Fork, Plan, RunningGroups, SealedBlocks, SequenceId
from kvmanager.errors import BrokenPromise, MalformedPlan


class PlanChecker:
    """Holds a plan against the tables. Every method raises ``MalformedPlan`` or ``BrokenPromise`` with the numbers."""

    __slots__ = ("_device", "_host")

    def __init__(self, device: DeviceTables, host: HostTier) -> None:
        self._device = device
        self._host = host

    def check(self, plan: Plan) -> None:
        """Returns if ``plan`` can be applied."""
        self._check_sealed(plan.sealed)
        children = self._check_forks(plan.forks)
        released = self._check_released(plan.released, children)
        running = self._check_running(plan.running, children, released)
        self._check_entering(plan.entering, children, running.union(released))

    def _check_sealed(self, sealed: SealedBlocks) -> None:
        columns = (sealed.sequence_ids, sealed.block_indexes, sealed.hashes)
        _same_length("sealed", "sequence_ids, block_indexes and hashes", *columns)
        for sequence_id, index, prefix_hash in zip(*columns, strict=True):
            table = self._known("sealed", sequence_id)
            num_full = table.num_slots // self._device.block_size
            if index >= num_full:
                raise BrokenPromise(f"sealed: block {index} of sequence {sequence_id}: only {num_full} blocks are full")
            if len(prefix_hash) != HASH_BYTES:
                raise MalformedPlan(f"sealed.hashes: an entry has {len(prefix_hash)} bytes, not {HASH_BYTES}")

    def _check_forks(self, forks: Collection[Fork]) -> dict[SequenceId, BlockTable]:
        """The children, each with the table that it starts from."""
        children: dict[SequenceId, BlockTable] = {}
        for fork in forks:
            if fork.child_id in children or fork.child_id in self._device or fork.child_id in self._host.tables:
                raise BrokenPromise(f"forks: child {fork.child_id} exists already")
            children[fork.child_id] = children.get(fork.parent_id) or self._known("forks", fork.parent_id)
        return children

    def _check_released(
        self, released: Collection[SequenceId], children: dict[SequenceId, BlockTable]
    ) -> Collection[SequenceId]:
        if not released:
            return ()
        for sequence_id in released:
            if sequence_id not in children:
                self._known("released", sequence_id)
        return _distinct("released", released)

    def _check_running(
        self, running: RunningGroups, children: dict[SequenceId, BlockTable], released: Collection[SequenceId]
    ) -> set[SequenceId]:
        columns = (running.group_ids, running.num_sequences, running.preemptions)
        _same_length("running", "group_ids, num_sequences and preemptions", *columns)
        _same_length("running", "sequence_ids and num_new_slots", running.sequence_ids, running.num_new_slots)
        _adds_up("running", running.num_sequences, running.sequence_ids)
        ids = _distinct("running", running.sequence_ids)
        for sequence_id in ids.difference(self._device.by_id):
            origin = children.get(sequence_id)
            if origin is None or origin.sequence_id not in self._device:
                raise BrokenPromise(f"running: sequence {sequence_id} has no table on the device")
        _disjoint("running", ids, released)
        return ids

    def _check_entering(
        self, entering: EnteringGroups, children: dict[SequenceId, BlockTable], others: Collection[SequenceId]
    ) -> None:
        _same_length("entering", "group_ids and num_sequences", entering.group_ids, entering.num_sequences)
        columns = (entering.sequence_ids, entering.num_tokens, entering.prefix_hashes)
        _same_length("entering", "sequence_ids, num_tokens and prefix_hashes", *columns)
        if not entering.group_ids:
            return
        _adds_up("entering", entering.num_sequences, entering.sequence_ids)
        _disjoint("entering", _distinct("entering", entering.sequence_ids), others)
        for sequence_id, num_tokens, prefix_hashes in zip(*columns, strict=True):
            known = children.get(sequence_id) or self._device.by_id.get(sequence_id)
            if known is not None and known.sequence_id in self._device:
                raise BrokenPromise(f"entering: sequence {sequence_id} is on the device already")
            swapped = known or self._host.tables.get(sequence_id)
            fewest = 1 if swapped is None else swapped.num_slots
            if num_tokens < fewest:
                raise BrokenPromise(
                    f"entering.num_tokens: {num_tokens} for sequence {sequence_id}: must be at least {fewest}"
                    + ("" if swapped is None else ", the number of tokens whose KV is swapped out")
                )
            num_full = num_tokens // self._device.block_size
            if len(prefix_hashes) > num_full:
                raise MalformedPlan(
                    f"entering.prefix_hashes: {len(prefix_hashes)} for sequence {sequence_id}: "
                    f"its {num_tokens} tokens fill {num_full} blocks"
                )

    def _known(self, field: str, sequence_id: SequenceId) -> BlockTable:
        if sequence_id in self._device:
            return self._device[sequence_id]
        table = self._host.tables.get(sequence_id)
        if table is None:
            raise BrokenPromise(f"{field}: sequence {sequence_id} is unknown")
        return table


def _same_length(field: str, names: str, *columns: Sized) -> None:
    lengths = [len(column) for column in columns]
    if lengths.count(lengths[0]) != len(lengths):
        raise MalformedPlan(f"{field}: {names} have {lengths} entries, which must be equal numbers")


def _adds_up(field: str, num_sequences: Collection[int], sequence_ids: Sized) -> None:
    if sum(num_sequences) != len(sequence_ids) or 0 in num_sequences:
        raise MalformedPlan(
            f"{field}: {len(num_sequences)} groups of together {sum(num_sequences)} sequences, "
            f"but {len(sequence_ids)} sequence_ids; no group may be empty"
        )


def _distinct(field: str, sequence_ids: Collection[SequenceId]) -> set[SequenceId]:
    distinct = set(sequence_ids)
    if len(distinct) != len(sequence_ids):
        raise BrokenPromise(f"{field}: {len(sequence_ids)} sequence ids, of which {len(distinct)} are different")
    return distinct


def _disjoint(field: str, sequence_ids: set[SequenceId], others: Collection[SequenceId]) -> None:
    common = sequence_ids.intersection(others)
    if common:
        raise BrokenPromise(f"{field}: sequence {min(common)} is released or running in the same plan")
