"""The sequences of a step in hand, as the columns that a worker reads."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from scheduler.core.beams import num_top_of
from scheduler.core.request import Request, SamplingParams, SequenceId
from scheduler.core.scoring import ScoredRows
from scheduler.core.sealing import SealedBlocks
from scheduler.core.sequence import Sequence, SequenceStatus
from scheduler.core.steps import SAMPLED_TOKEN, Grant, NewSequence, Step


class StepBatch:
    """Who computes how many tokens. Columns; entry i of each is one sequence."""

    step: Step  # once it is handed out

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []
        self._num_tokens: list[int] = []
        self._ends: list[int] = []  # positions after the last token
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

    def hand_out(self, grant: Grant, epoch: int) -> Step:
        """The step as a value, whose tokens count as computed from now on.

        A sequence samples if its last known token is computed, or the one that the step before samples; a trunk does
        for all its siblings.
        """
        sequences, num_tokens = self._sequences, self._num_tokens
        positions = [sequence.num_computed_tokens for sequence in sequences]
        self._ends = [position + num for position, num in zip(positions, num_tokens, strict=True)]
        samples: list[bool] = []
        token_ids: list[int] = []
        for sequence, num, position, end in zip(sequences, num_tokens, positions, self._ends, strict=True):
            known = sequence.token_ids
            if sequence.scoring is not None:
                self.scored.ask(sequence.scoring, len(token_ids), position, num)
            if num == 1:
                token_ids.append(known[position] if position < len(known) else SAMPLED_TOKEN)
            else:
                token_ids += known[position:end]
            samples.append(end >= len(known))
            sequence.num_computed_tokens = end
        self.samplers = [sequence for sequence, sampled in zip(sequences, samples, strict=True) if sampled]
        num_choices = [sequence.num_branches for sequence in sequences]
        is_constrained = any(sequence.constraint is not None for sequence in self.samplers)
        self.step = Step(
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
        return self.step

    @property
    def decides_the_next(self) -> bool:
        """Whether the next step depends on more than the number of tokens that this one samples.

        So it is with a search, a grammar, and a prompt for several choices that ends here.
        """
        return any(sequence.constraint is not None or sequence.beam is not None for sequence in self.samplers) or bool(
            self.completed_trunks()
        )

    def completed_trunks(self) -> list[Sequence]:
        """Live trunks whose prompt this step completes: their siblings can be forked then."""
        return [
            sequence
            for sequence, end in zip(self._sequences, self._ends, strict=True)
            if sequence.num_branches > 1 and not sequence.is_finished and end == sequence.num_wanted_tokens
        ]

    def seal(self, sealed: SealedBlocks, block_size: int, released: Collection[SequenceId]) -> None:
        """The step was computed: its tokens have KV now, and blocks that became full are sealed.

        This holds for sequences that ended meanwhile too, if they are ``released`` in the next plan; their blocks
        stay cached. What was computed for a token that was discarded is not sealed.
        """
        for sequence, end in zip(self._sequences, self._ends, strict=True):
            num_full_blocks = min(end, len(sequence.token_ids)) // block_size
            if num_full_blocks > sequence.num_sealed_blocks and _has_memory(sequence, released):
                sealed.seal(sequence, num_full_blocks)


def _has_memory(sequence: Sequence, released: Collection[SequenceId]) -> bool:
    """Whether the next plan finds the table of a sequence; its blocks are released after they are sealed."""
    if sequence.status is SequenceStatus.FINISHED:
        return sequence.sequence_id in released
    return sequence.status is not SequenceStatus.WAITING


def _sampling_of(request: Request) -> SamplingParams:
    """What the worker is told: of a beam search also how many candidates for the next token it needs."""
    if request.beams is None:
        return request.sampling
    num_top = max(request.sampling.num_top_logprobs, num_top_of(request.beams, request.stop))
    return replace(request.sampling, num_top_logprobs=num_top)


def _mask(sequence: Sequence, samples: bool) -> bytes:
    """The tokens that may be drawn: for a trunk those that begin every output."""
    return sequence.constraint.mask if samples and sequence.constraint is not None else b""
