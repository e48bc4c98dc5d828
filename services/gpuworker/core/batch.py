"""The ragged batch of a step: which token reads and writes where (paper §4.3, §4.6)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuworker.core.history import TokenHistory
from gpuworker.core.steps import Sample, SamplingParams, SequenceId, Step
from gpuworker.core.tables import BlockTable, BlockTables


@dataclass(frozen=True, slots=True)
class SequenceSampling:
    """What drawing a sequence's tokens needs; a history where its rules look back."""

    params: SamplingParams
    num_prompt_tokens: int = 0
    history: TokenHistory | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """All tokens of a step, sequences one after the other.

    ``sample_rows`` are the tokens that have logits; ``samples[i]`` is drawn from row ``logit_rows[i]`` of these. The
    last rows, one for each entry of ``scored_token_ids``, are there to score that token. A slot is
    ``block_id * block_size + offset``.
    """

    token_ids: Sequence[int]  # [num_tokens]
    positions: Sequence[int]  # [num_tokens]
    slot_mapping: Sequence[int]  # [num_tokens]
    query_starts: Sequence[int]  # [num_seqs + 1]
    context_lens: Sequence[int]  # [num_seqs], tokens with the new ones
    block_tables: Sequence[BlockTable]  # [num_seqs], each as long as its sequence's table
    sample_rows: Sequence[int]  # [num_rows]
    logit_rows: Sequence[int]  # [num_samples]
    samples: Sequence[Sample]  # [num_samples]
    scored_token_ids: Sequence[int] = ()  # [num_scored]
    scored_num_top: Sequence[int] = ()  # [num_scored], most probable tokens to tell with each


def lay_out(step: Step, tables: BlockTables, sampling: Mapping[SequenceId, SequenceSampling], block_size: int) -> Batch:
    """The batch of ``step``, whose changes must have been carried out on ``tables``."""
    positions: list[int] = []
    slot_mapping: list[int] = []
    query_starts = [0]
    sample_rows: list[int] = []
    logit_rows: list[int] = []
    samples: list[Sample] = []
    block_tables = [tables.table(sequence_id) for sequence_id in step.sequence_ids]
    context_lens = [first + count for first, count in zip(step.positions, step.num_tokens, strict=True)]
    for index, sequence_id in enumerate(step.sequence_ids):
        first, end = step.positions[index], context_lens[index]
        if end - first == 1:  # a decode, of which a step may have hundreds
            positions.append(first)
            slot_mapping.append(block_tables[index][first // block_size] * block_size + first % block_size)
        else:
            positions.extend(range(first, end))
            slot_mapping.extend(slots(block_tables[index], first, end, block_size))
        query_starts.append(len(positions))
        if step.samples[index]:
            drawn = _samples(step, index, sampling[sequence_id])
            samples += drawn
            logit_rows += [len(sample_rows)] * len(drawn)
            sample_rows.append(len(positions) - 1)
    return Batch(
        token_ids=step.token_ids,
        positions=positions,
        slot_mapping=slot_mapping,
        query_starts=query_starts,
        context_lens=context_lens,
        block_tables=block_tables,
        sample_rows=[*sample_rows, *step.scored_rows],
        logit_rows=logit_rows,
        samples=samples,
        scored_token_ids=step.scored_token_ids,
        scored_num_top=step.scored_num_top,
    )


def _samples(step: Step, index: int, sampling: SequenceSampling) -> list[Sample]:
    """A sample for each choice that begins here; for the sequence's own where there is but one."""
    sample = Sample(
        step.sequence_ids[index],
        step.positions[index] + step.num_tokens[index],
        sampling.params,
        sampling.num_prompt_tokens,
        sampling.history,
        step.token_masks[index] if step.token_masks else b"",
    )
    num_choices = step.num_choices[index] if step.num_choices else 1
    if num_choices == 1:
        return [sample]
    return [
        replace(sample, params=replace(sampling.params, choice_index=choice_index))
        for choice_index in range(num_choices)
    ]


def slots(table: BlockTable, first: int, end: int, block_size: int) -> Iterator[int]:
    """Slots of the positions ``first`` to ``end``, the end excluded, of a sequence with this table."""
    for index in range(first // block_size, -(-end // block_size)):
        start = index * block_size
        shift = table[index] * block_size - start
        yield from range(max(first, start) + shift, min(end, start + block_size) + shift)
