"""The cases and the steps of the device check on the emulation: only the clock and the sizes differ from a device."""

from collections.abc import Callable

import device_timing
import pytest
import torch
from device_equality import RandomWeights, compare

from doubles import emulated_cuda
from gpuworker.model.config import ModelConfig

pytestmark = pytest.mark.skipif(
    not emulated_cuda.LIBRARY.is_file(), reason="`make emulated` builds the kernels' emulation, on x86-64"
)


def test_every_case_runs_on_the_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_once(work: Callable[[], object]) -> float:
        work()
        return 1.0

    for name, value in {"LEAST_BYTES": 1, "VOCAB": 512, "NUM_HEADS": 4, "NUM_KV_HEADS": 2, "HEAD_SIZE": 64}.items():
        monkeypatch.setattr(device_timing, name, value)
    for name, value in {"HIDDEN": 64, "INTERMEDIATE": 64, "DTYPE": torch.float32}.items():
        monkeypatch.setattr(device_timing, name, value)
    monkeypatch.setattr(device_timing, "seconds_of", run_once)
    ops = emulated_cuda.emulated_ops()
    small = [device_timing.AttentionCase(2, 1, 32), device_timing.AttentionCase(1, 32, 32)]
    figures = [device_timing.attention(ops, case, "attention") for case in small]
    figures += [getattr(device_timing, name)(ops, 32) for name in ("write_kv", "rotary", "norm", "activation")]
    figures += [device_timing.sampling(ops, 2), device_timing.copy_blocks(ops, 2)]
    figures += [device_timing.swap_out(ops), device_timing.swap_in(ops)]
    assert all(figure.seconds > 0 and (figure.num_bytes > 0 or figure.flops > 0) for figure in figures)
    assert len(list(device_timing.cases(ops))) == len(device_timing.DECODES) + len(device_timing.PREFILLS) + 8


def test_steps_on_the_emulation_equal_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("device_equality.PROMPT_LENS", (3, 17, 1))
    config = ModelConfig(96, 256, 96, 2, 4, 2, 64, 64, 1e-5, 1e4, tie_word_embeddings=True)
    result = compare(emulated_cuda.emulated_ops(), RandomWeights(config), num_decodes=2, graph_sizes=(4,))
    assert result.holds
    assert (result.num_equal, result.num_tokens) == (9, 9)
