"""Whole steps on the device beside the reference on the CPU: the same greedy tokens?

Both get the tokens of the reference, so that one difference does not become many.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gpuworker.core.state import Limits
from gpuworker.core.steps import BlockChanges, BlockId, NewSequence, SamplingParams, SequenceId, Step, StepResult
from gpuworker.device.executor import NUM_PADDING_BLOCKS, DeviceExecutor
from gpuworker.device.rows import CudaRows
from gpuworker.engine import Engine, Identity
from gpuworker.errors import ModelUnreadable
from gpuworker.executor import Executor
from gpuworker.kernels.cuda import CudaOps
from gpuworker.kernels.reference import ReferenceOps
from gpuworker.model.config import ModelConfig
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.weights.source import StoredRows, WeightSource, tensor_shapes

BLOCK_SIZE, NUM_HOST_BLOCKS = 16, 1
PROMPT_LENS = (5, 48, 1, 17, 33)
SMOLLM2_135M = ModelConfig(49152, 576, 1536, 30, 9, 3, 64, 2048, 1e-5, 1e5, tie_word_embeddings=True)
LARGEST_DIFFERENCE = 1e-3  # of log-probabilities, both in float32


@dataclass(frozen=True)
class Equality:
    """How the two compared."""

    num_tokens: int
    num_equal: int
    largest_difference: float  # of the tokens' log-probabilities

    @property
    def holds(self) -> bool:
        """All tokens are equal, or close enough for ties to fall apart, which are few."""
        return self.largest_difference < LARGEST_DIFFERENCE and self.num_equal >= 0.97 * self.num_tokens

    def __str__(self) -> str:
        return (
            f"{self.num_equal} of {self.num_tokens} tokens equal, "
            f"log-probabilities differ by {self.largest_difference:.1e} at most"
        )


class RandomWeights:
    """A model of the default model's shape that no file holds."""

    def __init__(self, config: ModelConfig = SMOLLM2_135M) -> None:
        self.config = config
        self.name = "random weights"
        self.path = Path()
        self._shapes = dict(tensor_shapes(config))

    def tensor(self, name: str) -> torch.Tensor:
        """The same values at every call."""
        numbers = torch.Generator().manual_seed(list(self._shapes).index(name))
        shape = self._shapes[name]
        return torch.rand(shape, generator=numbers) if len(shape) == 1 else torch.randn(shape, generator=numbers) * 0.1

    def stored(self, name: str) -> StoredRows:
        """See ``WeightSource``: there is no file."""
        raise ModelUnreadable(f"{name} is made up, not stored")

    def files(self) -> tuple[Path, ...]:
        """See ``WeightSource``."""
        return ()


def compare(
    ops: CudaOps, source: WeightSource, num_decodes: int = 24, graph_sizes: Sequence[int] = (1, 4, 8)
) -> Equality:
    """Prefills prompts together and decodes, in float32."""
    context_len = max(PROMPT_LENS) + num_decodes + 1
    blocks_per_seq = -(-context_len // BLOCK_SIZE)
    num_blocks = blocks_per_seq * len(PROMPT_LENS)
    limits = Limits(BLOCK_SIZE, num_blocks, NUM_HOST_BLOCKS, context_len, source.config.vocab_size)
    engines = [
        Engine(Identity("w", source.name, b"", "float32", "", 0, limits), executor)
        for executor in (
            _reference(source, num_blocks, context_len),
            _on_device(ops, source, num_blocks, context_len, graph_sizes),
        )
    ]
    pairs = [_both(engines, _first_step(source.config.vocab_size, blocks_per_seq))]
    for index in range(num_decodes):
        pairs.append(_both(engines, _next_step(index, pairs[-1][0])))
    expected, actual = zip(*pairs, strict=True)
    tokens = list(zip(_column(expected, "token_ids"), _column(actual, "token_ids"), strict=True))
    logprobs = zip(_column(expected, "logprobs"), _column(actual, "logprobs"), strict=True)
    return Equality(len(tokens), sum(a == b for a, b in tokens), max(abs(a - b) for a, b in logprobs))


def _reference(source: WeightSource, num_blocks: int, context_len: int) -> Executor:
    ops, model = ReferenceOps(), Llama(source, torch.float32, context_len)
    pools = (
        ops.allocate(cache_shape(source.config, num, BLOCK_SIZE), torch.float32)
        for num in (num_blocks, NUM_HOST_BLOCKS)
    )
    return Executor(model, ops, *pools)


def _on_device(
    ops: CudaOps, source: WeightSource, num_blocks: int, context_len: int, graph_sizes: Sequence[int]
) -> DeviceExecutor:
    rows = CudaRows(ops.library, ops.device, torch.float32)
    model = Llama(source, torch.float32, context_len, ops.device.torch_device, rows)
    device_shape = cache_shape(source.config, num_blocks + NUM_PADDING_BLOCKS, BLOCK_SIZE)
    host_shape = cache_shape(source.config, NUM_HOST_BLOCKS, BLOCK_SIZE)
    pools = ops.allocate(device_shape, torch.float32), ops.allocate_host(host_shape, torch.float32)
    return DeviceExecutor(model, ops, *pools, graph_sizes)


def _first_step(vocab_size: int, blocks_per_seq: int) -> Step:
    ids = tuple(SequenceId(index) for index in range(len(PROMPT_LENS)))
    numbers = torch.Generator().manual_seed(1)
    token_ids = torch.randint(vocab_size, (sum(PROMPT_LENS),), generator=numbers).tolist()
    block_ids = torch.randperm(blocks_per_seq * len(ids), generator=numbers).tolist()
    return Step(
        1,
        0,
        BlockChanges(
            appended_sequence_ids=ids,
            appended_num_blocks=(blocks_per_seq,) * len(ids),
            appended_block_ids=tuple(map(BlockId, block_ids)),
        ),
        tuple(NewSequence(sequence_id, SamplingParams()) for sequence_id in ids),
        ids,
        PROMPT_LENS,
        (0,) * len(ids),
        (True,) * len(ids),
        tuple(token_ids),
    )


def _next_step(index: int, last: StepResult) -> Step:
    num_seqs = len(PROMPT_LENS)
    positions = tuple(length + index for length in PROMPT_LENS)
    return Step(
        index + 2,
        0,
        sequence_ids=last.sequence_ids,
        num_tokens=(1,) * num_seqs,
        positions=positions,
        samples=(True,) * num_seqs,
        token_ids=last.token_ids,
    )


def _both(engines: Sequence[Engine], step: Step) -> tuple[StepResult, StepResult]:
    expected, actual = (engine.execute(replace(step, epoch=engine.epoch)) for engine in engines)
    if not isinstance(expected, StepResult) or not isinstance(actual, StepResult):
        raise RuntimeError(f"step {step.step_id} failed: {expected}, {actual}")
    return expected, actual


def _column(results: Sequence[StepResult], name: str) -> list[float]:
    return [value for result in results for value in getattr(result, name)]
