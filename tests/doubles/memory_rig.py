"""Small plans in one line: block size 4, 8 device blocks, 8 host blocks, unless said."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from doubles.worker_memory import WorkerMemory, pairs
from kvmanager.core.block_space import BlockSpace
from kvmanager.core.plan import (
    EnteringGroups,
    Fork,
    Grant,
    Plan,
    PoolShape,
    Preemption,
    PrefixHash,
    RunningGroups,
    SealedBlocks,
)

RECOMPUTE, SWAP = Preemption.RECOMPUTE, Preemption.SWAP


def chain(*tokens_of_blocks: object) -> list[PrefixHash]:
    """The hashes of a prefix whose blocks hold the given contents."""
    hashes, parent = [], b""
    for tokens in tokens_of_blocks:
        parent = sha256(parent + repr(tokens).encode()).digest()
        hashes.append(PrefixHash(parent))
    return hashes


@dataclass(frozen=True)
class Running:
    """A group and the new slots of each of its sequences."""

    group_id: int
    slots: dict[int, int]
    mode: Preemption = RECOMPUTE


@dataclass(frozen=True)
class Entering:
    """A group and the known tokens of each of its sequences."""

    group_id: int
    num_tokens: dict[int, int]
    hashes: dict[int, Sequence[PrefixHash]] = field(default_factory=dict)


def plan(
    step_id: int,
    *,
    sealed: Sequence[tuple[int, int, PrefixHash]] = (),
    forks: Sequence[tuple[int, int]] = (),
    released: Sequence[int] = (),
    running: Sequence[Running] = (),
    entering: Sequence[Entering] = (),
    budget: int = 1000,
) -> Plan:
    return Plan(
        step_id,
        sealed=SealedBlocks([s[0] for s in sealed], [s[1] for s in sealed], [s[2] for s in sealed]),
        forks=[Fork(parent, child) for parent, child in forks],
        released=list(released),
        running=RunningGroups(
            [group.group_id for group in running],
            [len(group.slots) for group in running],
            [group.mode for group in running],
            [sequence_id for group in running for sequence_id in group.slots],
            [num_slots for group in running for num_slots in group.slots.values()],
        ),
        entering=EnteringGroups(
            budget if entering else 0,
            [group.group_id for group in entering],
            [len(group.num_tokens) for group in entering],
            [sequence_id for group in entering for sequence_id in group.num_tokens],
            [num_tokens for group in entering for num_tokens in group.num_tokens.values()],
            [group.hashes.get(sequence_id, ()) for group in entering for sequence_id in group.num_tokens],
        ),
    )


class MemoryRig:
    """A space and the worker behind it; every step is checked and carried out."""

    def __init__(
        self, num_device_blocks: int = 8, num_host_blocks: int = 8, block_size: int = 4, watermark_blocks: int = 0
    ) -> None:
        self.space = BlockSpace.empty(PoolShape(block_size, num_device_blocks, num_host_blocks, watermark_blocks))
        self.worker = WorkerMemory(num_device_blocks, num_host_blocks, block_size)

    def step(self, **wants: object) -> Grant:
        grant = self.space.apply(plan(self.space.last_step_id + 1, **wants))
        assert self.space.check() == []
        self.worker.carry_out(grant.changes)
        return grant

    def prompt(self, sequence_id: int, num_tokens: int, hashes: Sequence[PrefixHash] = ()) -> Grant:
        """Lets a group of one sequence enter, computes all of it and seals its full blocks."""
        grant = self.step(entering=[Entering(sequence_id, {sequence_id: num_tokens}, {sequence_id: hashes})])
        assert grant.admitted_group_ids == [sequence_id], grant.refusal
        if hashes:
            self.step(sealed=[(sequence_id, index, value) for index, value in enumerate(hashes)])
        return grant

    def decode(self, *sequence_ids: int, **wants: object) -> Grant:
        """One slot for each of some groups of one sequence."""
        return self.step(running=[Running(sequence_id, {sequence_id: 1}) for sequence_id in sequence_ids], **wants)

    def blocks(self, sequence_id: int) -> list[int]:
        blocks = self.space.blocks_of(sequence_id)
        assert blocks is not None, f"sequence {sequence_id} is not on the device"
        return list(blocks)

    @property
    def num_used(self) -> int:
        return self.space.usage.num_used_device_blocks

    @property
    def num_cached(self) -> int:
        return self.space.usage.num_cached_device_blocks

    def assert_idle(self) -> None:
        """Without live sequences every block of both tiers is free, with or without content worth keeping."""
        assert self.space.num_sequences == 0
        usage = self.space.usage
        assert usage.num_used_device_blocks == usage.num_used_host_blocks == 0
        assert len(self.space.free_blocks()) == self.space.shape.num_device_blocks


def copies(grant: Grant) -> list[tuple[int, int]]:
    return pairs(grant.changes.copies)
