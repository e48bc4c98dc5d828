"""Contiguous KV memory with reservation: the Orca baselines (paper §6.1).

Each sequence gets one chunk for its prompt and its estimated output when its group enters, and keeps it until it
ends. Nothing is shared, nothing grows, and nobody gives way: what entered can finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvmanager.core.plan import BlockChanges, EnteringGroups, Fork, Grant, GroupId, Plan, PoolUsage, SequenceId
from kvmanager.core.spaces.buddy import BuddyAllocator, Chunk
from kvmanager.core.spaces.memory_space import Estimate, Lengths, LengthsOf, Occupancy
from kvmanager.errors import BrokenPromise


@dataclass(frozen=True, slots=True)
class ContiguousShape:
    """A pool, and what is reserved in it."""

    block_size: int  # tokens; the unit of the allocator
    num_blocks: int
    max_model_len: int
    estimate: Estimate


@dataclass(slots=True, eq=False)
class _Group:
    """Chunks of one request: one for each of its sequences, those that are not forked yet included."""

    lengths: Lengths
    num_reserved_slots: int  # per chunk
    spare: list[Chunk]
    num_unforked: int  # sequences that will be forked when the prompt is computed
    num_live: int = 0


@dataclass(slots=True)
class _Held:
    chunk: Chunk
    group: _Group
    num_filled: int = 0


@dataclass(slots=True)
class _Admitted:
    """Columns as in ``Grant``."""

    group_ids: list[GroupId] = field(default_factory=list)
    sequence_ids: list[SequenceId] = field(default_factory=list)
    num_present_tokens: list[int] = field(default_factory=list)
    num_new_slots: list[int] = field(default_factory=list)
    refusal: str = ""


class ContiguousSpace:
    """Applies plans with chunks of a ``BuddyAllocator``. First come, first served: the queue's head blocks the rest."""

    __slots__ = ("_allocator", "_held", "_lengths_of", "_num_spare_slots", "last_step_id", "shape")

    def __init__(self, shape: ContiguousShape, lengths_of: LengthsOf) -> None:
        self.shape = shape
        self.last_step_id = 0
        self._allocator = BuddyAllocator(shape.num_blocks)
        self._lengths_of = lengths_of
        self._held: dict[SequenceId, _Held] = {}

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out. Running sequences always get their slots; whoever enters gets chunks or waits.

        Raises:
            BrokenPromise: A sequence is unknown, or writes behind its chunk.

        """
        copies = self._end(plan.forks, plan.released)
        self._append(plan.running.sequence_ids, plan.running.num_new_slots)
        admitted = self._enter(plan.entering)
        self.last_step_id = plan.step_id
        return Grant(
            step_id=plan.step_id,
            admitted_group_ids=admitted.group_ids,
            admitted_sequence_ids=admitted.sequence_ids,
            num_present_tokens=admitted.num_present_tokens,
            num_new_slots=admitted.num_new_slots,
            changes=BlockChanges(copies=copies),
            usage=self.usage,
            refusal=admitted.refusal,
        )

    # --- Questions ---

    @property
    def usage(self) -> PoolUsage:
        """Blocks in chunks that somebody holds."""
        return PoolUsage(self._allocator.num_blocks - self._allocator.num_free_blocks)

    @property
    def num_sequences(self) -> int:
        """Sequences that hold a chunk."""
        return len(self._held)

    def blocks_of(self, sequence_id: SequenceId) -> range:
        """The blocks of its chunk that a sequence has written to; none for an unknown sequence."""
        held = self._held.get(sequence_id)
        if held is None:
            return range(0)
        return range(held.chunk.start, held.chunk.start - (-held.num_filled // self.shape.block_size))

    def occupancy(self) -> Occupancy:
        """Where the slots are; the rounding of chunks to powers of two counts as external, as in the paper's Fig. 2."""
        filled = reserved = internal = 0
        for held in self._held.values():
            num_final = min(held.group.lengths.num_tokens, held.group.num_reserved_slots)
            filled += held.num_filled
            reserved += max(0, num_final - held.num_filled)
            internal += held.group.num_reserved_slots - max(num_final, held.num_filled)
        return Occupancy(self.shape.num_blocks * self.shape.block_size, filled, reserved, internal)

    # --- Commands ---

    def _end(self, forks: Sequence[Fork], released: Sequence[SequenceId]) -> list[int]:
        """A child takes a chunk that was set aside for it, or that of a sequence which ends in the same step.

        What its parent has written is copied: returns the moves, source block before destination.
        """
        copies: list[int] = []
        ending = {sequence_id: self._held[sequence_id] for sequence_id in released if sequence_id in self._held}
        for held in ending.values():
            held.group.spare.append(held.chunk)
        for fork in forks:
            parent = self._known("forks", fork.parent_id)
            parent.group.num_unforked = 0
            child = self._hold(fork.child_id, parent.group, parent.num_filled)
            for index in range(-(-parent.num_filled // self.shape.block_size)):
                copies += (parent.chunk.start + index, child.start + index)
        for sequence_id in released:
            held = self._known("released", sequence_id)
            del self._held[sequence_id]
            held.group.num_live -= 1
            if sequence_id not in ending:  # a child that ended before it was forked
                held.group.spare.append(held.chunk)
            self._free_spare(held.group)
        return copies

    def _hold(self, sequence_id: SequenceId, group: _Group, num_filled: int) -> Chunk:
        chunk = group.spare.pop()
        self._held[sequence_id] = _Held(chunk, group, num_filled)
        group.num_live += 1
        return chunk

    def _free_spare(self, group: _Group) -> None:
        num_kept = group.num_unforked if group.num_live else 0
        while len(group.spare) > num_kept:
            self._allocator.free(group.spare.pop())

    def _append(self, sequence_ids: Sequence[SequenceId], num_new_slots: Sequence[int]) -> None:
        for sequence_id, num_new in zip(sequence_ids, num_new_slots, strict=True):
            held = self._known("running", sequence_id)
            held.num_filled += num_new
            if held.num_filled > held.group.num_reserved_slots:
                raise BrokenPromise(
                    f"running: sequence {sequence_id} wants {held.num_filled} slots, "
                    f"but reserved {held.group.num_reserved_slots}"
                )

    def _enter(self, entering: EnteringGroups) -> _Admitted:
        admitted = _Admitted()
        budget = entering.token_budget
        for group_id, sequence_id, num_tokens in zip(
            entering.group_ids, entering.sequence_ids, entering.num_tokens, strict=True
        ):
            group = self._reserve(sequence_id) if budget > 0 else None
            if group is None:
                admitted.refusal = f"group {group_id} waits for {'a chunk' if budget > 0 else 'token budget'}"
                break
            num_new = min(num_tokens, budget)
            budget -= num_new
            self._hold(sequence_id, group, num_new)
            admitted.group_ids.append(group_id)
            admitted.sequence_ids.append(sequence_id)
            admitted.num_present_tokens.append(0)
            admitted.num_new_slots.append(num_new)
        return admitted

    def _reserve(self, sequence_id: SequenceId) -> _Group | None:
        """Chunks for all sequences of a group, or nothing."""
        lengths = self._lengths_of(sequence_id)
        num_slots = self.shape.estimate.num_slots(lengths, self.shape.max_model_len)
        num_blocks = -(-num_slots // self.shape.block_size)
        chunks: list[Chunk] = []
        for _ in range(lengths.num_sequences):
            chunk = self._allocator.allocate(num_blocks)
            if chunk is None:
                for taken in chunks:
                    self._allocator.free(taken)
                return None
            chunks.append(chunk)
        return _Group(lengths, num_slots, chunks, num_unforked=lengths.num_sequences - 1)

    def _known(self, field_name: str, sequence_id: SequenceId) -> _Held:
        held = self._held.get(sequence_id)
        if held is None:
            raise BrokenPromise(f"{field_name}: sequence {sequence_id} is unknown")
        return held
