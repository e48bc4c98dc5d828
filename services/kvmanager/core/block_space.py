"""The memory of one worker: tables, counts and prefix cache of its device and host pools."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvmanager.core.admission import Admission, Admitted
from kvmanager.core.arbitration import Arbitration, Preempted
from kvmanager.core.audit import audit
from kvmanager.core.block_pool import BlockPool, BlockPoolSnapshot
from kvmanager.core.block_table import BlockTable, DeviceTables
from kvmanager.core.changes import ChangeLog
from kvmanager.core.device_tier import DeviceTier
from kvmanager.core.history import StepTrace
from kvmanager.core.host_tier import HostTier
from kvmanager.core.pins import Pin
from kvmanager.core.plan import (
    BlockId,
    Fork,
    Grant,
    Plan,
    PoolShape,
    PoolUsage,
    PrefixHash,
    SealedBlocks,
    SequenceId,
)
from kvmanager.core.prefix_cache import PrefixCache
from kvmanager.core.promises import PlanChecker
from kvmanager.errors import BrokenPromise, StaleStep


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One sequence's table."""

    sequence_id: SequenceId
    num_slots: int
    num_promised_blocks: int
    blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class BlockSpaceSnapshot:
    """Everything a ``BlockSpace`` knows. Two spaces with equal snapshots answer every plan alike."""

    shape: PoolShape
    last_step_id: int
    device: BlockPoolSnapshot
    host: BlockPoolSnapshot
    device_hashes: Sequence[PrefixHash | None]  # by block id
    host_hashes: dict[BlockId, PrefixHash]
    device_tables: Sequence[TableSnapshot]
    host_tables: Sequence[TableSnapshot]
    device_parents: Sequence[PrefixHash | None]  # by block id: the prefix before it
    pins: Sequence[Pin]


class BlockSpace:
    """Applies plans. Deterministic: the same plans after the same snapshot give the same grants and the same state.

    The clock is the step id. ``apply`` raises only for broken promises and malformed plans, and then has changed
    nothing. Questions change nothing, eviction order included.
    """

    __slots__ = ("_admission", "_arbitration", "_checker", "_device", "_host", "last_step_id", "last_trace", "shape")

    def __init__(self, shape: PoolShape, device: DeviceTables, host: HostTier, last_step_id: int) -> None:
        self.shape = shape
        self.last_step_id = last_step_id
        self.last_trace = StepTrace()  # of the last applied plan; not part of the state
        self._device = device
        self._host = host
        self._checker = PlanChecker(device, host)
        self._arbitration = Arbitration(device, host)
        self._admission = Admission(device, host, shape.watermark_blocks)

    @classmethod
    def empty(cls, shape: PoolShape) -> "BlockSpace":
        """A space in which every block is free and nothing is cached."""
        tier = DeviceTier(BlockPool(shape.num_device_blocks), PrefixCache(shape.num_device_blocks))
        return cls(shape, DeviceTables(tier, shape.block_size), HostTier(BlockPool(shape.num_host_blocks)), 0)

    # --- Commands ---

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out and says what it got.

        Step ids are consecutive; only the first one of a space may be any positive number, since its caller may have
        counted before. Raises ``StaleStep`` for a wrong one, ``BrokenPromise`` and ``MalformedPlan``.
        """
        self._check_step_id(plan.step_id)
        self._checker.check(plan)
        changes = ChangeLog()
        tier = self._device.tier
        tier.evicted, num_taken, num_pins = [], tier.num_taken, tier.pins.num_pins
        self._seal(plan.sealed, changes)
        self._fork(plan.forks, changes)
        self._release(plan.released, plan.step_id, changes)
        preempted = self._arbitration.append(plan.running, plan.step_id, changes)
        admitted = self._enter(plan, preempted, changes)
        self.last_step_id = plan.step_id
        self.last_trace = StepTrace(
            num_allocated_blocks=tier.num_taken - num_taken,
            evicted_block_ids=tier.evicted,
            preempted_reasons=preempted.reasons,
            num_swaps_refused=preempted.num_swaps_refused,
            num_prompt_tokens=admitted.num_prompt_tokens,
            num_hit_tokens=admitted.num_hit_tokens,
            num_ended_pins=num_pins - tier.pins.num_pins,
        )
        return Grant(
            step_id=plan.step_id,
            preempted_group_ids=preempted.group_ids,
            preempted_modes=preempted.modes,
            admitted_group_ids=admitted.group_ids,
            admitted_sequence_ids=admitted.sequence_ids,
            num_present_tokens=admitted.num_present_tokens,
            num_new_slots=admitted.num_new_slots,
            changes=changes.freeze(),
            usage=self.usage,
            refusal=admitted.refusal,
        )

    def change_watermark(self, watermark_blocks: int) -> None:
        """Sets the number of device blocks that an entering group leaves free."""
        self.shape = replace(self.shape, watermark_blocks=watermark_blocks)
        self._admission = Admission(self._device, self._host, watermark_blocks)

    def forget_sequences(self) -> None:
        """Frees every sequence on both tiers and keeps the prefix cache."""
        for table in list(self._device.by_id.values()):
            self._device.release(table, self.last_step_id)
        for table in list(self._host.tables.values()):
            self._host.release(table, self.last_step_id)

    def pin(self, prefix_hash: PrefixHash, expires_at_ms: int) -> None:
        """Keeps a cached chain; raises ``BrokenPromise`` if the hash is not in the cache."""
        tier = self._device.tier
        if tier.cache.block_of(prefix_hash) is None:
            raise BrokenPromise(f"pin: {prefix_hash.hex()} is not in the prefix cache")
        self.unpin(prefix_hash)
        tier.pin(Pin(prefix_hash, tuple(tier.cache.chain(prefix_hash)), expires_at_ms))

    def unpin(self, prefix_hash: PrefixHash) -> None:
        """Ends a pin, if there is one."""
        if self._device.tier.pins.get(prefix_hash) is not None:
            self._device.tier.unpin(prefix_hash, self.last_step_id)

    def reset_prefix_cache(self) -> None:
        """Forgets every hash and ends every pin; raises ``BrokenPromise`` while there are sequences."""
        if self.num_sequences:
            raise BrokenPromise(f"reset: {self.num_sequences} sequences hold blocks")
        self._device.tier.forget_all(self.last_step_id)

    def _unpin_all(self, step_id: int) -> None:
        for pin in self._device.tier.pins.all():
            self._device.tier.unpin(pin.prefix_hash, step_id)

    def _check_step_id(self, step_id: int) -> None:
        if step_id != self.last_step_id + 1 and (self.last_step_id or step_id < 1):
            raise StaleStep(f"step_id: {step_id} does not follow {self.last_step_id}, the last step that was answered")

    def _seal(self, sealed: SealedBlocks, changes: ChangeLog) -> None:
        for sequence_id, index, prefix_hash in zip(
            sealed.sequence_ids, sealed.block_indexes, sealed.hashes, strict=True
        ):
            if sequence_id not in self._device:
                self._host.seal(self._host.tables[sequence_id], index, prefix_hash)
                continue
            table = self._device[sequence_id]
            duplicate = BlockId(table.blocks[index])
            if self._device.seal(table, index, prefix_hash) is not None:
                changes.replaced(table, index)
                self._device.tier.release(duplicate, self.last_step_id)

    def _fork(self, forks: Sequence[Fork], changes: ChangeLog) -> None:
        for fork in forks:
            if fork.parent_id in self._device:
                self._device.fork(self._device[fork.parent_id], fork.child_id)
                changes.forked(fork)
            else:
                self._host.fork(self._host.tables[fork.parent_id], fork.child_id)

    def _release(self, released: Sequence[SequenceId], step_id: int, changes: ChangeLog) -> None:
        for sequence_id in released:
            if sequence_id in self._device:
                self._device.release(self._device[sequence_id], step_id)
                changes.dropped(sequence_id)
            else:
                self._host.release(self._host.tables[sequence_id], step_id)

    def _enter(self, plan: Plan, preempted: Preempted, changes: ChangeLog) -> Admitted:
        if not plan.entering.group_ids:
            return Admitted()
        if preempted.group_ids:
            return Admitted(
                refusal=f"group {plan.entering.group_ids[0]} waits while {len(preempted.group_ids)} groups give way"
            )
        admitted = self._admission.enter(plan.entering, plan.step_id, changes)
        if admitted.refusal and not len(self._device) and self._device.tier.num_pinned:
            # Nothing runs, so nothing will become free: pins must not keep the head of the queue out for ever.
            self._unpin_all(plan.step_id)
            admitted = self._admission.enter(plan.entering, plan.step_id, changes)
        return admitted

    # --- Questions ---

    @property
    def usage(self) -> PoolUsage:
        """Block counts now."""
        tier = self._device.tier
        return PoolUsage(tier.num_used, tier.num_cached_free, self._host.num_used)

    @property
    def num_sequences(self) -> int:
        """Sequences on both tiers."""
        return len(self._device) + len(self._host.tables)

    def blocks_of(self, sequence_id: SequenceId) -> Sequence[int] | None:
        """The device blocks of a sequence in logical order; ``None`` if it has no table on the device."""
        return self._device[sequence_id].blocks[:] if sequence_id in self._device else None

    def host_blocks_of(self, sequence_id: SequenceId) -> Sequence[int] | None:
        """The host blocks of a swapped sequence in logical order; ``None`` if it is not swapped."""
        table = self._host.tables.get(sequence_id)
        return None if table is None else table.blocks[:]

    def num_slots_of(self, sequence_id: SequenceId) -> int | None:
        """KV slots of a sequence, written or granted."""
        table = self._device.by_id.get(sequence_id) or self._host.tables.get(sequence_id)
        return None if table is None else table.num_slots

    def count_of(self, block_id: BlockId) -> int:
        """References to a device block."""
        return self._device.tier.pool.counts[block_id]

    def hash_of(self, block_id: BlockId) -> PrefixHash | None:
        """The prefix that a device block holds the end of."""
        return self._device.tier.cache.hash_of(block_id)

    def free_blocks(self) -> list[BlockId]:
        """Free device blocks in the order in which they would be taken."""
        return self._device.tier.pool.free_blocks()

    def check(self) -> list[str]:
        """Contradictions in what the space knows, in words; empty if it is sound. O(pool size)."""
        return audit(self._device, self._host)

    @property
    def device(self) -> DeviceTables:
        """The device's tables, blocks and cache, to look at."""
        return self._device

    @property
    def host(self) -> HostTier:
        """The host's tables and blocks, to look at."""
        return self._host

    # --- Snapshots ---

    def snapshot(self) -> BlockSpaceSnapshot:
        """A copy of everything, at the cost of copying flat arrays."""
        tier = self._device.tier
        return BlockSpaceSnapshot(
            shape=self.shape,
            last_step_id=self.last_step_id,
            device=tier.pool.snapshot(),
            host=self._host.pool.snapshot(),
            device_hashes=tier.cache.hashes(),
            host_hashes=dict(self._host.hashes),
            device_tables=[_snapshot_of(table) for table in self._device.by_id.values()],
            host_tables=[_snapshot_of(table) for table in self._host.tables.values()],
            device_parents=tier.cache.parents(),
            pins=tier.pins.all(),
        )

    @classmethod
    def restore(cls, snapshot: BlockSpaceSnapshot) -> "BlockSpace":
        """The space that the snapshot was taken of."""
        cache = PrefixCache.restore(list(snapshot.device_hashes), list(snapshot.device_parents))
        tier = DeviceTier(BlockPool.restore(snapshot.device), cache, snapshot.pins)
        device = DeviceTables(tier, snapshot.shape.block_size)
        for entry in snapshot.device_tables:
            table = _restored(entry)
            device.add(table)
            device.num_promised_blocks += max(0, entry.num_promised_blocks - len(table.blocks))
        host = HostTier(BlockPool.restore(snapshot.host))
        host.hashes.update(snapshot.host_hashes)
        host.tables.update({entry.sequence_id: _restored(entry) for entry in snapshot.host_tables})
        return cls(snapshot.shape, device, host, snapshot.last_step_id)


def _snapshot_of(table: BlockTable) -> TableSnapshot:
    return TableSnapshot(table.sequence_id, table.num_slots, table.num_promised_blocks, table.blocks[:])


def _restored(entry: TableSnapshot) -> BlockTable:
    table = BlockTable(entry.sequence_id, entry.blocks, entry.num_slots)
    table.num_promised_blocks = entry.num_promised_blocks
    return table
