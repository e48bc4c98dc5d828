"""The native step around a source of weights, and ragged batches to compute with it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuworker.core.batch import Batch
from gpuworker.core.steps import Sample, SamplingParams, SequenceId
from gpuworker.native.executor import Logits, NativeExecutor
from gpuworker.native.layout import formats
from gpuworker.native.library import StepLibrary
from gpuworker.native.model import NativeModel
from gpuworker.native.packing import load_packed
from gpuworker.native.pool import Pool
from gpuworker.native.precision import choose_precision
from gpuworker.settings import Activations, Dtype, Weights
from gpuworker.weights.source import WeightSource

BLOCK_SIZE = 4
NUM_BLOCKS = 512
GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class Chunk:
    """The last tokens of a sequence's context, with the blocks of all of it; logits of the last row or of all."""

    context: Sequence[int]
    num_tokens: int
    table: Sequence[int]
    all_rows: bool = False


def native_executor(
    source: WeightSource,
    dtype: Dtype = Dtype.FLOAT32,
    weights: Weights = Weights.AUTO,
    activations: Activations = Activations.FLOAT,
    *,
    num_threads: int = 1,
    block_size: int = BLOCK_SIZE,
) -> NativeExecutor:
    library = StepLibrary()
    packed = load_packed(source, weights, dtype, library)
    model = NativeModel(
        source.config,
        packed,
        library,
        precision=choose_precision(activations, set(formats(packed.places)), dtype),
        num_positions=source.config.max_position,
        num_threads=num_threads,
    )
    device, host = (Pool.allocate(source.config, NUM_BLOCKS, block_size, dtype) for _ in range(2))
    return NativeExecutor(library, model, device, host)


def scattered(first: int, num_tokens: int, block_size: int = BLOCK_SIZE) -> list[int]:
    """Blocks for a sequence, neither adjacent nor in order; those of different multiples of 16 do not meet."""
    count = -(-num_tokens // block_size)
    assert count <= 16
    return [first + (5 * index + 3) % 16 for index in range(count)]


def ragged(chunks: Sequence[Chunk], samples: Sequence[SamplingParams] = (), block_size: int = BLOCK_SIZE) -> Batch:
    """The batch of the chunks; with ``samples``, a token is drawn after each."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts, rows = [0], []
    for chunk in chunks:
        for position in range(len(chunk.context) - chunk.num_tokens, len(chunk.context)):
            token_ids.append(chunk.context[position])
            positions.append(position)
            slots.append(chunk.table[position // block_size] * block_size + position % block_size)
        rows += range(starts[-1] if chunk.all_rows else len(token_ids) - 1, len(token_ids))
        starts.append(len(token_ids))
    drawn = [
        Sample(SequenceId(index + 1), len(chunk.context), params)
        for index, (chunk, params) in enumerate(zip(chunks, samples, strict=False))
    ]
    return Batch(
        token_ids=token_ids,
        positions=positions,
        slot_mapping=slots,
        query_starts=starts,
        context_lens=[len(chunk.context) for chunk in chunks],
        block_tables=[np.array(chunk.table, dtype=np.int32) for chunk in chunks],
        sample_rows=rows,
        logit_rows=range(len(drawn)),
        samples=drawn,
    )


def logits_of_all(executor: NativeExecutor, token_ids: Sequence[int], *chunks: int) -> Logits:
    """Logits of every position of one sequence, computed in chunks."""
    table, end, rows = scattered(32, len(token_ids)), 0, []
    for count in chunks or (len(token_ids),):
        end += count
        rows.append(executor.logits(ragged([Chunk(token_ids[:end], count, table, all_rows=True)])))
    return np.concatenate(rows)
