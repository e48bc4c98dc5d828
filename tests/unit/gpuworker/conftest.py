"""One worker engine's parts around a source of weights."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from gpuworker.core.batch import Batch, SequenceSampling, lay_out
from gpuworker.core.steps import BlockChanges, SamplingParams, Step
from gpuworker.core.tables import BlockTables
from gpuworker.executor import Executor
from gpuworker.kernels import load_ops
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.weights.source import WeightSource

BLOCK_SIZE = 4
SCATTERED = tuple((7 * index + 3) % 32 for index in range(32))


@pytest.fixture(scope="session")
def logits_of() -> Callable[..., torch.Tensor]:
    """Logits of every position of a token list, computed in chunks over scattered blocks."""

    def compute(
        source: WeightSource, token_ids: list[int], *chunks: int, dtype: torch.dtype = torch.float32
    ) -> torch.Tensor:
        ops = load_ops("reference")
        pool = ops.allocate(cache_shape(source.config, 32, BLOCK_SIZE), dtype)
        executor = Executor(Llama(source, dtype, source.config.max_position), ops, pool, pool)
        rows, first = [], 0
        for count in chunks or (len(token_ids),):
            rows.append(executor.logits(every_row(token_ids[first : first + count], first)))
            first += count
        return torch.cat(rows)

    return compute


def every_row(token_ids: list[int], first: int) -> Batch:
    """A chunk of one sequence in which every token samples."""
    tables = BlockTables(num_device_blocks=32, num_host_blocks=0)
    tables.apply(BlockChanges(appended_sequence_ids=(1,), appended_num_blocks=(32,), appended_block_ids=SCATTERED))
    step = Step(1, 1, sequence_ids=(1,), num_tokens=(len(token_ids),), positions=(first,), samples=(True,))
    batch = lay_out(step, tables, {1: SequenceSampling(SamplingParams())}, BLOCK_SIZE)
    return replace(batch, token_ids=token_ids, sample_rows=range(len(token_ids)))
