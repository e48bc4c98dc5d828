"""Contiguous memory for a real worker: a chunk is a block table whose ids follow each other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from kvmanager.core.plan import BlockChanges, BlockId, Grant, Plan, SequenceId
from kvmanager.core.spaces.contiguous import ContiguousShape, ContiguousSpace
from kvmanager.core.spaces.memory_space import Lengths, Occupancy


@dataclass(frozen=True, slots=True)
class KnownOutputs:
    """What an oracle was told: the output of a request by the number of its prompt tokens, which no two share."""

    num_output_tokens: Mapping[int, int]
    max_model_len: int

    def lengths(self, num_prompt_tokens: int) -> Lengths:
        """A request that the oracle was not told of may go on to the model's end."""
        longest = max(1, self.max_model_len - num_prompt_tokens)
        return Lengths(num_prompt_tokens, self.num_output_tokens.get(num_prompt_tokens, longest))


class ServedContiguousSpace:
    """Applies plans to a ``ContiguousSpace``, and tells the worker each sequence's blocks as it comes to them."""

    __slots__ = ("_known", "_lengths", "_num_told", "_space")

    def __init__(self, shape: ContiguousShape, known: KnownOutputs) -> None:
        self._known = known
        self._lengths: dict[SequenceId, Lengths] = {}  # of sequences that wait or run
        self._num_told: dict[SequenceId, int] = {}  # blocks that the worker knows of
        self._space = ContiguousSpace(shape, self._lengths.__getitem__)

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out as ``ContiguousSpace`` does, with the changes of the worker's tables."""
        entering = plan.entering
        for sequence_id, num_tokens in zip(entering.sequence_ids, entering.num_tokens, strict=True):
            self._lengths.setdefault(sequence_id, self._known.lengths(num_tokens))
        grant = self._space.apply(plan)
        for sequence_id in plan.released:
            self._num_told.pop(sequence_id, None)
            self._lengths.pop(sequence_id, None)
        children = [fork.child_id for fork in plan.forks]
        grown = self._grown(chain(children, plan.running.sequence_ids, grant.admitted_sequence_ids))
        changes = BlockChanges(
            dropped=plan.released,
            appended_sequence_ids=list(grown),
            appended_num_blocks=[len(blocks) for blocks in grown.values()],
            appended_block_ids=[BlockId(block) for blocks in grown.values() for block in blocks],
            copies=grant.changes.copies,
        )
        return replace(grant, changes=changes)

    def occupancy(self) -> Occupancy:
        """Where the slots are."""
        return self._space.occupancy()

    def _grown(self, sequence_ids: Iterable[SequenceId]) -> dict[SequenceId, range]:
        """The blocks that the worker does not know of yet."""
        grown = {}
        for sequence_id in sequence_ids:
            blocks = self._space.blocks_of(sequence_id)
            if new := blocks[self._num_told.get(sequence_id, 0) :]:
                grown[sequence_id] = new
                self._num_told[sequence_id] = len(blocks)
        return grown
