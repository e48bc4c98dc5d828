"""The CUDA sampler, emulated, draws the tokens of gpuworker's own."""

import ctypes
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from gpuworker.core.steps import NO_TOKEN, SamplingParams
from gpuworker.core.steps import Sample as Draw
from gpuworker.row_structs import SampleParams, SamplingRow
from gpuworker.sampling import sample

LIBRARY = Path(__file__).parents[2] / "build" / "emulated" / "tests" / "liboctavo_cuda_emulated.so"


@pytest.fixture(scope="module")
def sample_on_cuda():
    if not LIBRARY.exists():
        pytest.skip(f"{LIBRARY.name} is not built: `make emulated` builds it, on x86-64")
    function = ctypes.CDLL(str(LIBRARY)).octavo_cuda_sample
    function.argtypes, function.restype = (SampleParams, ctypes.c_void_p), ctypes.c_int32

    def run(logits: torch.Tensor, draws: list[Draw]) -> list[int]:
        num_rows, vocab_size = logits.shape
        rows = (SamplingRow * num_rows)(*map(to_row, draws))
        workspace = torch.full((num_rows, (vocab_size + 3) // 4 * 4), math.nan)
        token_ids = torch.empty(num_rows, dtype=torch.int64)
        params = SampleParams(
            logits=logits.data_ptr(),
            rows=ctypes.addressof(rows),
            workspace=workspace.data_ptr(),
            token_ids=token_ids.data_ptr(),
            num_logits=num_rows,
            num_rows=num_rows,
            vocab_size=vocab_size,
        )
        assert function(params, None) == 0
        return token_ids.tolist()

    return run


def to_row(draw: Draw) -> SamplingRow:
    params = draw.params
    log_min_p = np.float32(math.log(params.min_p)) if params.min_p else -math.inf
    return SamplingRow(
        top_p=params.top_p,
        seed=params.seed,
        position=draw.position,
        choice_index=params.choice_index,
        top_k=params.top_k,
        temperature=params.temperature,
        log_min_p=log_min_p,
        repetition_penalty=1.0,
    )


def random_draw(numbers: random.Random) -> Draw:
    params = SamplingParams(
        temperature=numbers.choice([0.0, 0.4, 1.0, 1.7]),
        top_p=numbers.choice([1.0, 1.0, 0.9, 0.3]),
        top_k=numbers.choice([0, 0, 1, 40]),
        min_p=numbers.choice([0.0, 0.0, 0.05]),
        seed=numbers.getrandbits(64),
        choice_index=numbers.randrange(4),
    )
    return Draw(1, numbers.randrange(2**31), params)


@pytest.mark.parametrize("vocab_size", [17, 1000, 4096])
def test_tokens_are_those_of_the_python_sampler(sample_on_cuda, vocab_size):
    numbers = random.Random(vocab_size)
    draws = [random_draw(numbers) for _ in range(40)]
    logits = torch.randn(40, vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * 3
    assert sample_on_cuda(logits, draws) == sample(logits, draws)


def test_a_row_without_tokens_is_told_alike(sample_on_cuda):
    logits, draws = torch.full((1, 9), -math.inf), [Draw(1, 3, SamplingParams(temperature=1.0))]
    assert sample_on_cuda(logits, draws) == [NO_TOKEN]
