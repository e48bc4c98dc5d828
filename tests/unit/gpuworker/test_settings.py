"""Settings are checked once; what is not given is derived from the model and the machine."""

from pathlib import Path

import pytest
import torch

from doubles.tiny_llama import expected_config, random_llama, write_gguf
from gpuworker import assembly, torch_backend
from gpuworker.assembly import choose_max_model_len, choose_num_blocks, choose_step, load_backend, uses_cuda
from gpuworker.errors import KernelsUnavailable, SettingsInvalid
from gpuworker.kernels import cuda
from gpuworker.machine import available_memory_bytes, has_fast_bfloat16, has_nvidia_driver, num_cores
from gpuworker.settings import Activations, Dtype, Kernels, Settings, StepKind, Weights, parse_bytes
from gpuworker.torch_backend import choose_dtype
from gpuworker.weights.loading import open_weights


def settings(**changes: object) -> Settings:
    return Settings(**{"listen": "unix:/w.sock", "model": Path("m.gguf"), "worker_id": "w", **changes})


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1GiB", 2**30), ("512 MiB", 2**29), ("1.5kib", 1536), ("2GB", 2 * 10**9), ("4096", 4096), ("7B", 7)],
)
def test_sizes_are_read_with_their_unit(text, expected):
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "many", "1 GiBit", "-1GiB", "1e9"])
def test_a_size_that_makes_no_sense_is_refused(text):
    with pytest.raises(SettingsInvalid, match=r"--kv-memory is .* expected a number and a unit"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"listen": ""}, "--listen is empty"),
        ({"block_size": 0}, "--block-size is 0, but must be at least 1"),
        ({"num_device_blocks": 0}, "--num-device-blocks is 0"),
        ({"num_host_blocks": -1}, "--num-host-blocks is -1, but must be at least 0"),
        ({"kv_memory_bytes": 0}, "--kv-memory is 0"),
        ({"max_model_len": 0}, "--max-model-len is 0"),
        ({"threads": 0}, "--threads is 0"),
        ({"worker_id": ""}, "--worker-id is empty"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_flag_value_and_limit(changes, message):
    with pytest.raises(SettingsInvalid, match=message):
        settings(**changes)


def test_the_pool_is_sized_by_number_then_budget_then_memory(monkeypatch):
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: 4000)
    assert choose_num_blocks(settings(num_device_blocks=7, kv_memory_bytes=1), block_bytes=100) == (7, 3)
    assert choose_num_blocks(settings(kv_memory_bytes=1999), block_bytes=100) == (19, 9)
    assert choose_num_blocks(settings(), block_bytes=100) == (10, 5)
    assert choose_num_blocks(settings(num_host_blocks=0), block_bytes=100) == (10, 0)
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: 2**40)
    assert choose_num_blocks(settings(), block_bytes=2**20)[0] == 1024
    with pytest.raises(SettingsInvalid, match="--kv-memory is 99 bytes, but one block takes 100"):
        choose_num_blocks(settings(kv_memory_bytes=99), block_bytes=100)


def test_the_longest_sequence_is_the_models_unless_a_shorter_one_is_asked_for():
    assert choose_max_model_len(None, 128) == 128
    assert choose_max_model_len(64, 128) == 64
    with pytest.raises(SettingsInvalid, match="--max-model-len is 129, but the model has 128 positions"):
        choose_max_model_len(129, 128)


def test_auto_is_bfloat16_only_where_the_cpu_multiplies_it(monkeypatch):
    for fast, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch_backend, "has_fast_bfloat16", lambda fast=fast: fast)
        assert choose_dtype(Dtype.AUTO) is expected
    assert choose_dtype(Dtype.BFLOAT16) is torch.bfloat16
    assert choose_dtype(Dtype.FLOAT32) is torch.float32
    assert choose_dtype(Dtype.FLOAT16) is torch.float16


def test_a_device_pool_takes_what_its_device_has_and_pins_a_quarter_of_the_hosts_memory_at_most(monkeypatch):
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: 4000)
    assert choose_num_blocks(settings(), 100, device_kv_bytes=1_000) == (10, 5)
    assert choose_num_blocks(settings(), 100, device_kv_bytes=9_999) == (99, 10)
    assert choose_num_blocks(settings(num_host_blocks=70), 100, device_kv_bytes=9_999) == (99, 70)
    assert choose_num_blocks(settings(kv_memory_bytes=500), 100, device_kv_bytes=9_999) == (5, 2)
    monkeypatch.setattr(assembly, "available_memory_bytes", lambda: 2**40)
    assert choose_num_blocks(settings(), 2**20, device_kv_bytes=2**38) == (2**18, 2**12)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"dtype": Dtype.BFLOAT16, "weights": Weights.BFLOAT16}, True),
        ({"step": StepKind.TORCH}, True),
        ({"step": StepKind.NATIVE}, False),
        ({"weights": Weights.PACKED}, False),
        ({"activations": Activations.INT8}, False),
        ({"kernels": Kernels.CPU}, False),
        ({"kernels": Kernels.REFERENCE}, False),
    ],
)
def test_a_usable_device_is_used_unless_something_else_was_asked_for(monkeypatch, tmp_path, changes, expected):
    monkeypatch.setattr(assembly, "has_nvidia_driver", lambda: True)
    monkeypatch.setattr(cuda, "what_is_missing", lambda: "")
    monkeypatch.setattr(cuda, "installed_library", lambda kind: tmp_path / "library")
    (tmp_path / "library").touch()
    monkeypatch.setattr(assembly, "installed_library", lambda kind: tmp_path / "library")
    assert uses_cuda(settings(**changes)) is expected
    monkeypatch.setattr(assembly, "has_nvidia_driver", lambda: False)
    assert not uses_cuda(settings(**changes))
    assert uses_cuda(settings(kernels=Kernels.CUDA))


def test_a_driver_is_seen_by_its_files(tmp_path):
    assert not has_nvidia_driver([tmp_path / "nvidiactl"])
    (tmp_path / "nvidiactl").touch()
    assert has_nvidia_driver([tmp_path / "nvidiactl"])


def test_float16_is_refused_where_no_kernel_has_it(tmp_path):
    random_llama().save_pretrained(tmp_path)
    source = open_weights(tmp_path)
    for kernels in (Kernels.AUTO, Kernels.CPU):
        with pytest.raises(SettingsInvalid, match="--dtype is float16, but the cpu kernels have float32 and bfloat16"):
            load_backend(settings(dtype=Dtype.FLOAT16, kernels=kernels), source, 16)
    assert load_backend(settings(dtype=Dtype.FLOAT16, kernels=Kernels.REFERENCE), source, 16).dtype == "float16"


def test_the_arithmetic_of_a_worker_names_what_activations_are_multiplied_in(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path / "cache"))
    source = open_weights(write_gguf(random_llama(), tmp_path / "tiny.gguf", "Q4_1"))
    asked = (Activations.AUTO, Activations.FLOAT, Activations.INT8)
    auto, floats, int8 = (load_backend(settings(activations=value), source, 16).arithmetic for value in asked)
    assert auto == floats != int8
    assert "int8 products" in int8


def test_asking_for_cuda_without_a_device_is_an_error_and_no_fallback(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    random_llama().save_pretrained(tmp_path)
    with pytest.raises(KernelsUnavailable, match="the cuda kernels need"):
        load_backend(settings(kernels=Kernels.CUDA), open_weights(tmp_path), 16)


def test_the_machine_is_read_from_its_files(tmp_path):
    meminfo, cpuinfo = tmp_path / "meminfo", tmp_path / "cpuinfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    assert available_memory_bytes(meminfo, tmp_path) == 5000 * 1024
    (tmp_path / "memory.current").write_text("1000000\n")
    for limit, expected in (("max", 5000 * 1024), ("3000000", 2_000_000), ("500000", 0), ("999999999", 5000 * 1024)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert available_memory_bytes(meminfo, tmp_path) == expected
    for flags, expected in (("fpu avx2", False), ("avx2 avx512_bf16", True), ("amx_bf16", True)):
        cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n")
        assert has_fast_bfloat16(cpuinfo) is expected
    assert num_cores() >= 1


@pytest.mark.parametrize(
    ("changes", "head_size", "expected"),
    [
        ({}, 16, StepKind.NATIVE),
        ({"kernels": Kernels.CPU, "weights": Weights.Q8_0}, 16, StepKind.NATIVE),
        ({"kernels": Kernels.REFERENCE}, 16, StepKind.TORCH),
        ({"step": StepKind.TORCH}, 16, StepKind.TORCH),
        ({"step": StepKind.TORCH, "dtype": Dtype.BFLOAT16, "weights": Weights.BFLOAT16}, 16, StepKind.TORCH),
        ({}, 24, StepKind.TORCH),
    ],
)
def test_steps_are_native_where_kernels_and_model_allow_it(changes, head_size, expected):
    assert choose_step(settings(**changes), expected_config(random_llama(head_dim=head_size))) is expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"step": StepKind.NATIVE, "kernels": Kernels.REFERENCE},
            "--kernels is reference, but --step native needs cpu",
        ),
        ({"step": StepKind.NATIVE}, "--step is native, but it cannot compute heads of 24"),
        ({"weights": Weights.Q8_0}, "--weights is q8_0, but steps in torch have the weights in the --dtype"),
        ({"step": StepKind.TORCH, "weights": Weights.PACKED}, "--weights is packed, but steps in torch"),
        ({"activations": Activations.INT8}, "--activations is int8, but steps in torch multiply floats"),
    ],
)
def test_settings_that_contradict_each_other_or_the_model_are_refused(changes, message):
    with pytest.raises(SettingsInvalid, match=message):
        choose_step(settings(**changes), expected_config(random_llama(head_dim=24)))
