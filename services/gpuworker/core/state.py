"""What a worker knows of its sequences between steps, and the rules that a step must keep."""

from dataclasses import dataclass

from gpuworker.core.batch import Batch, SequenceSampling, lay_out
from gpuworker.core.history import TokenHistory
from gpuworker.core.promises import check_new_sequences, check_shape, check_token_ids
from gpuworker.core.sampled import SampledTokens
from gpuworker.core.steps import NewSequence, SequenceId, Step
from gpuworker.core.tables import BlockTable, BlockTables, LengthsAfter
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
    """Block tables and what sampling needs of every sequence.

    ``check`` asks and changes nothing; ``apply`` changes everything that the step changes. Between the two nothing
    can go wrong, so a step takes place whole or not at all.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._tables = BlockTables(num_device_blocks=limits.num_device_blocks, num_host_blocks=limits.num_host_blocks)
        self._sampling: dict[SequenceId, SequenceSampling] = {}
        self._histories: dict[SequenceId, TokenHistory] = {}  # of those sequences whose rules look back
        self.sampled = SampledTokens()

    @property
    def num_sequences(self) -> int:
        """Sequences that have a block table."""
        return len(self._tables)

    def tables(self) -> dict[SequenceId, BlockTable]:
        """A copy of all block tables."""
        return self._tables.copy()

    def check(self, step: Step) -> Step:
        """The step with the tokens that the last one sampled.

        Raises ``StepRefused`` with the field, the value and the limit unless it can be carried out.
        """
        lengths = self._tables.check(step.changes)
        check_shape(step)
        step = self.sampled.fill_in(step)
        check_new_sequences(step.new_sequences, self._limits.vocab_size)
        check_token_ids(step, self._limits.vocab_size)
        self._check_sequences(step, lengths)
        return step

    def apply(self, step: Step) -> Batch:
        """Carries out the changes of a step that ``check`` returned, and lays out its batch."""
        self._tables.apply(step.changes)
        for sequence_id in step.changes.dropped:
            self._sampling.pop(sequence_id, None)
            self._histories.pop(sequence_id, None)
        for new in step.new_sequences:
            self._introduce(new)
        if self._histories:
            self._remember(step)
        return lay_out(step, self._tables, self._sampling, self._limits.block_size)

    def forget(self) -> None:
        """Forgets every sequence."""
        self._tables.clear()
        self._sampling.clear()
        self._histories.clear()
        self.sampled.clear()

    def _introduce(self, new: NewSequence) -> None:
        rules, history = new.sampling.rules, None
        self._histories.pop(new.sequence_id, None)
        if rules is not None and rules.looks_back:
            history = TokenHistory(new.token_ids, new.num_prompt_tokens)
            self._histories[new.sequence_id] = history
        self._sampling[new.sequence_id] = SequenceSampling(new.sampling, new.num_prompt_tokens, history)

    def _remember(self, step: Step) -> None:
        """Has the histories take in the tokens that the step computes."""
        start = 0
        for sequence_id, num_tokens, position in zip(step.sequence_ids, step.num_tokens, step.positions, strict=True):
            history = self._histories.get(sequence_id)
            if history is not None:
                history.extend(position, step.token_ids[start : start + num_tokens])
            start += num_tokens

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
