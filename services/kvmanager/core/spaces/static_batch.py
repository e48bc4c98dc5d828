"""Static batches: the FasterTransformer baseline (paper §6.1).

As many requests as there are places enter together, and nobody else before the last of them has ended. Each place is
a stretch of the model's full length.
"""

from dataclasses import dataclass

from kvmanager.core.plan import EnteringGroups, Grant, Plan, PoolUsage, SequenceId
from kvmanager.core.spaces.memory_space import Lengths, LengthsOf, Occupancy
from kvmanager.errors import BrokenPromise


@dataclass(frozen=True, slots=True)
class StaticShape:
    """A pool that is cut into ``num_places`` stretches of ``max_model_len`` slots."""

    block_size: int
    num_blocks: int
    max_model_len: int
    num_places: int


class StaticBatchSpace:
    """Applies plans with one batch at a time."""

    __slots__ = ("_is_open", "_lengths", "_lengths_of", "_num_filled", "_num_taken", "last_step_id", "shape")

    def __init__(self, shape: StaticShape, lengths_of: LengthsOf) -> None:
        self.shape = shape
        self.last_step_id = 0
        self._lengths_of = lengths_of
        self._num_filled: dict[SequenceId, int] = {}
        self._lengths: dict[SequenceId, Lengths] = {}  # of the same sequences
        self._num_taken = 0  # places of the batch, those of ended sequences included
        self._is_open = True  # until a plan lists nobody, or more than fit: one plan may not list all that wait

    def apply(self, plan: Plan) -> Grant:
        """Carries a plan out. Who enters does so only into an empty pool.

        Raises:
            BrokenPromise: A sequence is unknown.

        """
        self._end_and_append(plan)
        admitted = self._num_admitted(plan.entering)
        groups, sequences = plan.entering.group_ids[:admitted], plan.entering.sequence_ids[:admitted]
        num_tokens = list(plan.entering.num_tokens[:admitted])
        self._num_filled.update(zip(sequences, num_tokens, strict=True))
        self._lengths.update((sequence_id, self._lengths_of(sequence_id)) for sequence_id in sequences)
        self._num_taken += sum(self._lengths[sequence_id].num_sequences for sequence_id in sequences)
        self.last_step_id = plan.step_id
        self._is_open = self._is_open and 0 < admitted == len(plan.entering.group_ids)
        is_refused = bool(plan.entering.group_ids) and not admitted
        return Grant(
            step_id=plan.step_id,
            admitted_group_ids=groups,
            admitted_sequence_ids=sequences,
            num_present_tokens=[0] * admitted,
            num_new_slots=num_tokens,
            usage=self.usage,
            refusal=f"group {plan.entering.group_ids[0]} waits for the batch to end" if is_refused else "",
        )

    # --- Questions ---

    @property
    def usage(self) -> PoolUsage:
        """Blocks of the places that the batch took."""
        return PoolUsage(-(-self._num_taken * self.shape.max_model_len // self.shape.block_size))

    @property
    def num_taken(self) -> int:
        """Places that the batch took, those of ended sequences included."""
        return self._num_taken

    def occupancy(self) -> Occupancy:
        """Where the slots are; a place whose sequence has ended is internal waste until the batch ends."""
        filled = sum(self._num_filled.values())
        final = sum(lengths.num_tokens for lengths in self._lengths.values())
        reserved = max(0, final - filled)
        internal = self._num_taken * self.shape.max_model_len - filled - reserved
        return Occupancy(self.shape.num_blocks * self.shape.block_size, filled, reserved, internal)

    # --- Commands ---

    def _end_and_append(self, plan: Plan) -> None:
        running = zip(plan.running.sequence_ids, plan.running.num_new_slots, strict=True)
        try:
            for fork in plan.forks:
                self._num_filled[fork.child_id] = self._num_filled[fork.parent_id]
                self._lengths[fork.child_id] = self._lengths[fork.parent_id]
            for sequence_id in plan.released:
                del self._num_filled[sequence_id], self._lengths[sequence_id]
            for sequence_id, num_new in running:
                self._num_filled[sequence_id] += num_new
        except KeyError as error:
            raise BrokenPromise(f"plan {plan.step_id}: sequence {error} is unknown") from error
        if not self._num_filled:
            self._num_taken = 0
            self._is_open = True

    def _num_admitted(self, entering: EnteringGroups) -> int:
        """Groups of a new batch, whose prompts are computed whole in its first steps."""
        if not self._is_open:
            return 0
        places, budget, admitted = self.shape.num_places - self._num_taken, entering.token_budget, 0
        for sequence_id, num_tokens in zip(entering.sequence_ids, entering.num_tokens, strict=True):
            places -= self._lengths_of(sequence_id).num_sequences
            budget -= num_tokens
            if places < 0 or budget < 0:
                break
            admitted += 1
        return admitted
