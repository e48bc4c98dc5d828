"""Whole steps by the device's executor, its kernels emulated, beside the plain executor with the reference kernels."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from doubles import emulated_cuda
from doubles.tiny_llama import VOCAB_SIZE, random_llama, write_gguf
from gpuworker.core.state import Limits
from gpuworker.core.steps import BlockChanges, NewSequence, SamplingParams, Step, StepFailure, StepResult, TokenRules
from gpuworker.device.backend import cuda_backend
from gpuworker.device.executor import NUM_PADDING_BLOCKS, DeviceExecutor
from gpuworker.device.rows import CudaRows
from gpuworker.engine import Engine, Identity
from gpuworker.executor import Executor
from gpuworker.kernels import KernelInputError, load_ops
from gpuworker.model.config import ModelConfig
from gpuworker.model.llama import Llama, cache_shape
from gpuworker.model.rotary import Rotary
from gpuworker.model.rows import TorchRows
from gpuworker.settings import Dtype, Settings
from gpuworker.weights.loading import open_weights
from gpuworker.weights.source import WeightSource

BLOCK_SIZE, NUM_BLOCKS, NUM_HOST_BLOCKS, MAX_MODEL_LEN = 4, 24, 6, 40
LIMITS = Limits(BLOCK_SIZE, NUM_BLOCKS, NUM_HOST_BLOCKS, MAX_MODEL_LEN, VOCAB_SIZE)
IDENTITY = Identity("w", "tiny", b"", "float32", "", 0, LIMITS)
SAMPLING = {
    1: SamplingParams(num_top_logprobs=3),
    2: SamplingParams(temperature=1.0, top_p=0.9, seed=5, num_top_logprobs=1),
    3: SamplingParams(temperature=0.8, top_k=9, min_p=0.01, seed=6, rules=TokenRules(repetition_penalty=1.3)),
}
PROMPTS = {1: (3, 14, 15, 92, 65, 35, 89), 2: (79, 32), 3: (38, 46, 26, 43, 38)}
TABLES = {1: (7, 3, 11), 2: (20, 1, 2), 3: (0, 23, 5)}
LLAMA_OF_HEADS_OF_64 = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_layers": 1,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_size": 64,
    "max_position": 40,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e4,
}

pytestmark = pytest.mark.skipif(
    not emulated_cuda.LIBRARY.is_file(), reason="`make emulated` builds the kernels' emulation, on x86-64"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> WeightSource:
    """Heads of 64. GGUF aligns its tensors, as copying to a device does."""
    return open_weights(write_gguf(random_llama(hidden_size=256), tmp_path_factory.mktemp("model") / "tiny.gguf"))


@pytest.fixture(scope="module")
def model(source: WeightSource) -> Llama:
    return Llama(source, torch.float32, MAX_MODEL_LEN)


@pytest.fixture
def executors(source: WeightSource, model: Llama) -> tuple[Executor, DeviceExecutor]:
    def pool(num_blocks: int):
        return cache_shape(model.config, num_blocks, BLOCK_SIZE), torch.float32

    ops, cuda = load_ops("reference"), emulated_cuda.emulated_ops()
    return (
        Executor(model, ops, ops.allocate(*pool(NUM_BLOCKS)), ops.allocate(*pool(NUM_HOST_BLOCKS))),
        DeviceExecutor(
            Llama(source, torch.float32, MAX_MODEL_LEN, rows=CudaRows(cuda.library, cuda.device, torch.float32)),
            cuda,
            cuda.allocate(*pool(NUM_BLOCKS + NUM_PADDING_BLOCKS)),
            cuda.allocate_host(*pool(NUM_HOST_BLOCKS)),
            graph_sizes=(1, 2, 4),
        ),
    )


@pytest.fixture
def engines(executors: tuple[Executor, DeviceExecutor]) -> list[Engine]:
    return [Engine(IDENTITY, executor) for executor in executors]


@pytest.fixture
def step_both(engines: list[Engine]) -> Iterator[Callable[..., StepResult]]:
    """Hands the same step to both, and demands the same answer."""
    step_ids = iter(range(1, 99))

    def run(**columns: object) -> StepResult:
        step = Step(next(step_ids), 0, **columns)
        plain, on_device = (engine.execute(replace(step, epoch=engine.epoch)) for engine in engines)
        assert isinstance(plain, StepResult), plain
        assert isinstance(on_device, StepResult), on_device
        for column in ("sequence_ids", "token_ids", "num_top", "top_token_ids", "scored_top_token_ids"):
            assert getattr(on_device, column) == getattr(plain, column)
        for column in ("logprobs", "top_logprobs", "scored_logprobs", "scored_top_logprobs"):
            assert getattr(on_device, column) == pytest.approx(getattr(plain, column), abs=1e-4)
        return on_device

    yield run
    assert not any(engine.last_step_id == 0 for engine in engines)


def prefill(step_both: Callable[..., StepResult], **more: object) -> StepResult:
    return step_both(
        changes=BlockChanges(
            appended_sequence_ids=(1, 2, 3),
            appended_num_blocks=(3, 3, 3),
            appended_block_ids=TABLES[1] + TABLES[2] + TABLES[3],
        ),
        new_sequences=tuple(
            NewSequence(sequence_id, SAMPLING[sequence_id], len(prompt), prompt)
            for sequence_id, prompt in PROMPTS.items()
        ),
        sequence_ids=(1, 2, 3),
        num_tokens=tuple(map(len, PROMPTS.values())),
        positions=(0, 0, 0),
        samples=(True, True, True),
        token_ids=PROMPTS[1] + PROMPTS[2] + PROMPTS[3],
        **more,
    )


def decode(step_both: Callable[..., StepResult], last: StepResult, positions: list[int], **more: object) -> StepResult:
    num_seqs = len(positions)
    return step_both(
        sequence_ids=last.sequence_ids,
        num_tokens=(1,) * num_seqs,
        positions=tuple(positions),
        samples=(True,) * num_seqs,
        token_ids=last.token_ids,
        **more,
    )


def test_prefills_and_padded_decodes_give_the_tokens_of_the_reference(step_both) -> None:
    result = prefill(step_both)
    for index in range(4):
        result = decode(step_both, result, [len(prompt) + index for prompt in PROMPTS.values()])


def test_a_chunk_that_samples_nothing_leaves_its_kv(step_both) -> None:
    prompt, blocks = PROMPTS[1], TABLES[1]
    step_both(
        changes=BlockChanges(appended_sequence_ids=(1,), appended_num_blocks=(3,), appended_block_ids=blocks),
        new_sequences=(NewSequence(1, SAMPLING[1], len(prompt), prompt),),
        sequence_ids=(1,),
        num_tokens=(4,),
        positions=(0,),
        samples=(False,),
        token_ids=prompt[:4],
    )
    result = step_both(sequence_ids=(1,), num_tokens=(3,), positions=(4,), samples=(True,), token_ids=prompt[4:])
    decode(step_both, result, [len(prompt)])


def test_scored_prompt_tokens_and_several_choices_of_a_prompt(step_both) -> None:
    result = prefill(
        step_both,
        num_choices=(1, 3, 1),
        scored_rows=(0, 2, 8),
        scored_token_ids=(14, 92, 7),
        scored_num_top=(0, 2, 1),
    )
    assert result.sequence_ids == (1, 2, 2, 2, 3)


def test_blocks_are_swapped_copied_and_read_in_one_step(step_both) -> None:
    """Sequence 2 leaves the device, its blocks go to sequence 1, and it comes back elsewhere."""
    first = prefill(step_both)
    one = replace(first, sequence_ids=(1,), token_ids=first.token_ids[:1])
    second = decode(
        step_both,
        one,
        [7],
        changes=BlockChanges(
            swap_outs=(20, 4, 1, 2, 2, 0),
            copies=(3, 20),
            replaced_sequence_ids=(1,),
            replaced_indexes=(1,),
            replaced_block_ids=(20,),
        ),
    )
    both = replace(first, sequence_ids=(1, 2), token_ids=(second.token_ids[0], first.token_ids[1]))
    decode(
        step_both,
        both,
        [8, 2],
        changes=BlockChanges(
            swap_ins=(4, 9, 2, 10, 0, 12),
            replaced_sequence_ids=(2, 2, 2),
            replaced_indexes=(0, 1, 2),
            replaced_block_ids=(9, 10, 12),
        ),
    )


def test_sequences_whose_logits_are_not_finite_are_named_and_others_are_not(engines, executors, step_both) -> None:
    """Sequences 2 and 3 read NaN; the rules of 3 forbid nothing that would hide it."""
    first = prefill(step_both)
    plain, on_device = executors
    for pool in (plain.device_pool.pool, on_device.device_pool.pool):
        pool[[TABLES[2][0], TABLES[3][0]]] = torch.nan
    positions = tuple(map(len, PROMPTS.values()))
    step = Step(2, 0, sequence_ids=(1, 2, 3), num_tokens=(1, 1, 1), positions=positions, samples=(True,) * 3)
    for engine in engines:
        failure = engine.execute(replace(step, epoch=engine.epoch, token_ids=first.token_ids))
        assert isinstance(failure, StepFailure)
        assert failure.failed_sequence_ids == (2, 3)
        assert not failure.epoch_is_stale


def test_a_step_without_tokens_is_only_its_moves(step_both) -> None:
    first = prefill(step_both)
    step_both(
        changes=BlockChanges(
            copies=(7, 19), replaced_sequence_ids=(1,), replaced_indexes=(0,), replaced_block_ids=(19,)
        )
    )
    decode(step_both, first, [len(prompt) for prompt in PROMPTS.values()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rows_are_worked_on_as_in_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    cuda = emulated_cuda.emulated_ops()
    plain, on_device = TorchRows(dtype), CudaRows(cuda.library, cuda.device, dtype)
    rounding = {"rtol": torch.finfo(dtype).eps, "atol": 1e-5}
    weight, update = torch.rand(64), torch.randn(5, 64).to(dtype)
    residuals = [torch.randn(5, 64, generator=torch.Generator().manual_seed(2)) for _ in range(2)]
    for added in (None, update):
        expected = plain.add_and_norm(residuals[0], added, weight, 1e-5)
        torch.testing.assert_close(on_device.add_and_norm(residuals[1], added, weight, 1e-5), expected, **rounding)
    assert torch.equal(*residuals)

    rotary = Rotary(ModelConfig(**LLAMA_OF_HEADS_OF_64), 40)
    heads, positions = torch.randn(5, 4, 64).to(dtype), torch.tensor([0, 7, 39, 1, 2])
    expected = plain.turning(rotary, positions)(heads[:, :3])
    turned = on_device.turning(rotary, positions)(heads[:, :3])
    torch.testing.assert_close(turned, expected, **rounding)

    gate_up = torch.randn(5, 48).to(dtype)
    torch.testing.assert_close(on_device.silu_mul(gate_up), plain.silu_mul(gate_up), **rounding)


@pytest.mark.parametrize(("asked", "dtype"), [(Dtype.AUTO, "bfloat16"), (Dtype.FLOAT16, "float16")])
def test_the_backend_says_what_it_holds_and_how_much_its_device_has_left(source, tmp_path, asked, dtype) -> None:
    settings = Settings("unix:/w", tmp_path, "w", block_size=BLOCK_SIZE, dtype=asked)
    backend = cuda_backend(settings, source, MAX_MODEL_LEN, emulated_cuda.emulated_ops())
    assert (backend.kernels, backend.dtype, backend.arithmetic) == ("cuda", dtype, (dtype, "cuda"))
    assert backend.block_bytes == cache_shape(source.config, 1, BLOCK_SIZE).block_bytes(getattr(torch, dtype))
    assert backend.device_kv_bytes == int(0.85 * emulated_cuda.EmulatedDevice().free_bytes())


def test_a_block_size_without_kernels_is_refused_before_weights_are_loaded(source, tmp_path) -> None:
    settings = Settings("unix:/w", tmp_path, "w", block_size=24)
    with pytest.raises(KernelInputError, match="block_size is 24, but the cuda kernels take powers of two up to 256"):
        cuda_backend(settings, source, MAX_MODEL_LEN, emulated_cuda.emulated_ops())
