"""The sequences of the step in hand, as the columns that a worker reads."""

from collections.abc import Iterable
from dataclasses import replace

from scheduler.core.beams import num_top_of
from scheduler.core.request import Request, SamplingParams
from scheduler.core.scoring import ScoredRows
from scheduler.core.sealing import SealedBlocks
from scheduler.core.sequence import Sequence, SequenceStatus
from scheduler.core.steps import Grant, NewSequence, Step


class StepBatch:
    """Who computes how many tokens. Columns; entry i of each is one sequence."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._num_tokens: list[int] = []
        self._new_sequences: list[NewSequence] = []
        self.samplers: list[Sequence] = []
        self.scored = ScoredRows()

    def add_running(self, sequences: Iterable[Sequence], num_tokens: Iterable[int]) -> None:
        """Adds those that still run: neither preempted by the grant nor ended since the plan."""
        running = SequenceStatus.RUNNING
        for sequence, num in zip(sequences, num_tokens, strict=True):
            if num and sequence.status is running:
                self._sequences.append(sequence)
                self._num_tokens.append(num)

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        """Adds one sequence."""
        self._sequences.append(sequence)
        self._num_tokens.append(num_tokens)

    def introduce(self, sequence: Sequence, request: Request) -> None:
        """Has the worker told about a sequence that has no table there."""
        min_tokens = request.stop.min_tokens
        self._new_sequences.append(
            NewSequence(
                sequence.sequence_id,
                _sampling_of(request),
                sequence.choice_index,
                sequence.num_prompt_tokens,
                tuple(sequence.token_ids) if request.sampling.rules.looks_back else (),
                min_tokens,
                tuple(sequence.stop_token_ids) if min_tokens else (),
            )
        )

    def step(self, grant: Grant, epoch: int) -> Step:
        """The step as a value. A sequence samples if its last known token is computed, a trunk for all its siblings."""
        sequences, num_tokens = self._sequences, self._num_tokens
        positions = [sequence.num_computed_tokens for sequence in sequences]
        samples: list[bool] = []
        token_ids: list[int] = []
        for sequence, num, position in zip(sequences, num_tokens, positions, strict=True):
            known = sequence.token_ids
            if sequence.scoring is not None:
                self.scored.ask(sequence.scoring, len(token_ids), position, num)
            if num == 1:
                token_ids.append(known[position])
            else:
                token_ids += known[position : position + num]
            samples.append(position + num == len(known))
        self.samplers = [sequence for sequence, sampled in zip(sequences, samples, strict=True) if sampled]
        num_choices = [sequence.num_branches for sequence in sequences]
        is_constrained = any(sequence.constraint is not None for sequence in self.samplers)
        return Step(
            step_id=grant.step_id,
            epoch=epoch,
            changes=grant.changes,
            new_sequences=self._new_sequences,
            sequence_ids=[sequence.sequence_id for sequence in sequences],
            num_tokens=num_tokens,
            positions=positions,
            samples=samples,
            token_ids=token_ids,
            num_choices=num_choices if num_choices.count(1) < len(num_choices) else (),
            token_masks=[*map(_mask, sequences, samples)] if is_constrained else (),
            scored_rows=self.scored.rows,
            scored_token_ids=self.scored.token_ids,
            scored_num_top=self.scored.num_top,
        )

    def completed_trunks(self) -> list[Sequence]:
        """Live trunks whose prompt is computed now: their siblings can be forked."""
        return [
            sequence
            for sequence in self._sequences
            if sequence.num_branches > 1 and not sequence.is_finished and not sequence.num_uncomputed_tokens
        ]

    def count_computed(self, sealed: SealedBlocks, block_size: int) -> None:
        """The step was computed: its tokens have KV now, and blocks that became full are sealed.

        This holds for sequences that ended meanwhile too; their blocks stay cached.
        """
        for sequence, num in zip(self._sequences, self._num_tokens, strict=True):
            num_computed_tokens = sequence.num_computed_tokens + num
            sequence.num_computed_tokens = num_computed_tokens
            num_full_blocks = num_computed_tokens // block_size
            if num_full_blocks > sequence.num_sealed_blocks:
                sealed.seal(sequence, num_full_blocks)


def _sampling_of(request: Request) -> SamplingParams:
    """What the worker is told: of a beam search also how many candidates for the next token it needs."""
    if request.beams is None:
        return request.sampling
    num_top = max(request.sampling.num_top_logprobs, num_top_of(request.beams, request.stop))
    return replace(request.sampling, num_top_logprobs=num_top)


def _mask(sequence: Sequence, samples: bool) -> bytes:
    """The tokens that may be drawn: for a trunk those that begin every output."""
    return sequence.constraint.mask if samples and sequence.constraint is not None else b""
