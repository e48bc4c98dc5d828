"""What a worker knows of its sequences between steps, and the rules that a step must keep."""

from dataclasses import dataclass

from gpuworker.core.batch import Batch, lay_out
from gpuworker.core.steps import SamplingParams, SequenceId, Step
from gpuworker.core.tables import BlockTable, BlockTables, LengthsAfter, check_columns
from gpuworker.errors import StepRefused


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes that no step may exceed."""

    block_size: int  # tokens
    num_device_blocks: int
    num_host_blocks: int
    max_model_len: int  # tokens
    vocab_size: int


class StepState:
    """Block tables and sampling parameters of every sequence.

    ``check`` asks and changes nothing; ``apply`` changes everything that the step changes. Between the two nothing
    can go wrong, so a step takes place whole or not at all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tables = BlockTables(num_device_blocks=limits.num_device_blocks, num_host_blocks=limits.num_host_blocks)
        self._sampling: dict[SequenceId, SamplingParams] = {}

    @property
    def num_sequences(self) -> int:
        """Sequences that have a block table."""
        return len(self._tables)

    def tables(self) -> dict[SequenceId, BlockTable]:
        """A copy of all block tables."""
        return self._tables.copy()

    def check(self, step: Step) -> None:
        """Raises ``StepRefused`` with the field, the value and the limit unless the step can be carried out."""
        lengths = self._tables.check(step.changes)
        _check_shape(step)
        self._check_new_sequences(step)
        self._check_token_ids(step)
        self._check_sequences(step, lengths)

    def apply(self, step: Step) -> Batch:
        """Carries out the changes of a step that ``check`` accepted, and lays out its batch."""
        self._tables.apply(step.changes)
        for sequence_id in step.changes.dropped:
            self._sampling.pop(sequence_id, None)
        for new in step.new_sequences:
            self._sampling[new.sequence_id] = new.sampling
        return lay_out(step, self._tables, self._sampling, self._limits.block_size)

    def forget(self) -> None:
        """Forgets every sequence."""
        self._tables.clear()
        self._sampling.clear()

    def _check_new_sequences(self, step: Step) -> None:
        for new in step.new_sequences:
            params, name = new.sampling, f"sampling of sequence {new.sequence_id}"
            if not 0.0 <= params.temperature < float("inf"):
                raise StepRefused(f"{name}: temperature is {params.temperature}, but must be at least 0 and finite")
            if not 0.0 < params.top_p <= 1.0:
                raise StepRefused(f"{name}: top_p is {params.top_p}, but must be above 0 and at most 1")
            if params.top_k < 0:
                raise StepRefused(f"{name}: top_k is {params.top_k}, but must be at least 0")

    def _check_token_ids(self, step: Step) -> None:
        if step.token_ids and max(step.token_ids) >= self._limits.vocab_size:
            raise StepRefused(
                f"token_ids holds {max(step.token_ids)}, but the vocabulary has {self._limits.vocab_size} tokens"
            )
        if step.token_ids and min(step.token_ids) < 0:
            raise StepRefused(f"token_ids holds {min(step.token_ids)}, but must be at least 0")

    def _check_sequences(self, step: Step, lengths: LengthsAfter) -> None:
        known = self._sampling.keys() - set(step.changes.dropped) | {new.sequence_id for new in step.new_sequences}
        for index, sequence_id in enumerate(step.sequence_ids):
            end = step.positions[index] + step.num_tokens[index]
            self._check_room(sequence_id, end, lengths[sequence_id])
            if step.samples[index] and sequence_id not in known:
                raise StepRefused(f"sequence {sequence_id} samples, but new_sequences never told its parameters")

    def _check_room(self, sequence_id: SequenceId, end: int, num_blocks: int) -> None:
        limits = self._limits
        if not num_blocks:
            raise StepRefused(f"sequence_ids holds {sequence_id}, which is unknown")
        if end > num_blocks * limits.block_size:
            raise StepRefused(
                f"sequence {sequence_id} would have {end} tokens, "
                f"but its table has {num_blocks} blocks of {limits.block_size}"
            )
        if end > limits.max_model_len:
            raise StepRefused(
                f"sequence {sequence_id} would have {end} tokens, but max_model_len is {limits.max_model_len}"
            )


def _check_shape(step: Step) -> None:
    check_columns(
        sequence_ids=len(step.sequence_ids),
        num_tokens=len(step.num_tokens),
        positions=len(step.positions),
        samples=len(step.samples),
        num_choices=len(step.num_choices or step.samples),
    )
    if step.num_choices and min(step.num_choices) < 1:
        raise StepRefused(f"num_choices holds {min(step.num_choices)}, but must be at least 1")
    if len(set(step.sequence_ids)) != len(step.sequence_ids):
        raise StepRefused(f"sequence_ids names a sequence more than once: {sorted(step.sequence_ids)}")
    if step.num_tokens and min(step.num_tokens) < 1:
        raise StepRefused(f"num_tokens holds {min(step.num_tokens)}, but must be at least 1")
    if step.positions and min(step.positions) < 0:
        raise StepRefused(f"positions holds {min(step.positions)}, but must be at least 0")
    if sum(step.num_tokens) != len(step.token_ids):
        raise StepRefused(f"num_tokens sums to {sum(step.num_tokens)}, but token_ids has {len(step.token_ids)} entries")
