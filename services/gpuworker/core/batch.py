"""The ragged batch of a step: which token reads and writes where (paper §4.3, §4.6)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuworker.core.steps import Sample, SamplingParams, SequenceId, Step
from gpuworker.core.tables import BlockTable, BlockTables


@dataclass(frozen=True, slots=True)
class Batch:
    """All tokens of a step, sequences one after the other.

    ``sample_rows[i]`` is the token after which ``samples[i]`` is drawn. A slot is ``block_id * block_size + offset``.
    """

    token_ids: Sequence[int]  # [num_tokens]
    positions: Sequence[int]  # [num_tokens]
    slot_mapping: Sequence[int]  # [num_tokens]
    query_starts: Sequence[int]  # [num_seqs + 1]
    context_lens: Sequence[int]  # [num_seqs], tokens with the new ones
    block_tables: Sequence[BlockTable]  # [num_seqs], each as long as its sequence's table
    sample_rows: Sequence[int]  # [num_samples]
    samples: Sequence[Sample]  # [num_samples]


def lay_out(step: Step, tables: BlockTables, sampling: Mapping[SequenceId, SamplingParams], block_size: int) -> Batch:
    """The batch of ``step``, whose changes must have been carried out on ``tables``."""
    positions: list[int] = []
    slot_mapping: list[int] = []
    query_starts = [0]
    sample_rows: list[int] = []
    samples: list[Sample] = []
    block_tables = [tables.table(sequence_id) for sequence_id in step.sequence_ids]
    context_lens = [first + count for first, count in zip(step.positions, step.num_tokens, strict=True)]
    for index, sequence_id in enumerate(step.sequence_ids):
        first, end = step.positions[index], context_lens[index]
        positions.extend(range(first, end))
        slot_mapping.extend(slots(block_tables[index], first, end, block_size))
        query_starts.append(len(positions))
        if step.samples[index]:
            sample_rows.append(len(positions) - 1)
            samples.append(Sample(sequence_id, end, sampling[sequence_id]))
    return Batch(
        step.token_ids, positions, slot_mapping, query_starts, context_lens, block_tables, sample_rows, samples
    )


def slots(table: BlockTable, first: int, end: int, block_size: int) -> Iterator[int]:
    """Slots of the positions ``first`` to ``end``, the end excluded, of a sequence with this table."""
    for index in range(first // block_size, -(-end // block_size)):
        start = index * block_size
        shift = table[index] * block_size - start
        yield from range(max(first, start) + shift, min(end, start + block_size) + shift)
