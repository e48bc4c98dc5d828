"""Finding, loading and choosing the kernels."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpuworker import library, row_structs
from gpuworker.huge_pages import HUGE_PAGE_BYTES, map_huge_pages
from gpuworker.kernels import (
    AttentionBatch,
    KernelError,
    KernelInputError,
    KernelsUnavailable,
    KVCache,
    KVCacheShape,
    cuda,
    cuda_library,
    load_ops,
)
from gpuworker.kernels.cpu import CpuOps
from gpuworker.library import KernelLibrary, installed_library

INCLUDES = Path(__file__).parents[3] / "csrc" / "include"
HEADER = INCLUDES / "octavo.h"
C_TYPES = {
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "octavo_cache": library.CacheStruct,
}


def test_auto_is_cpu_without_a_device_and_each_name_gives_its_own_implementation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "what_is_missing", lambda: "a device")
    assert load_ops("reference").name == "reference"
    assert load_ops("cpu").name == load_ops("auto").name
    assert re.fullmatch(r"cpu\[(amx|avx512_bf16|avx512|avx2|portable)\]", load_ops("auto").name)


def test_an_unknown_implementation_is_refused_with_the_choices() -> None:
    with pytest.raises(KernelsUnavailable, match="'tpu', must be auto, reference, cpu or cuda"):
        load_ops("tpu")  # type: ignore[arg-type]


def test_auto_is_cuda_where_a_device_and_the_library_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda, "what_is_missing", lambda: "")
    monkeypatch.setattr(cuda, "installed_library", lambda kind: tmp_path / kind.file_name)
    assert not cuda.can_be_used()
    (tmp_path / "liboctavo_cuda.so").touch()
    assert cuda.can_be_used()
    monkeypatch.setattr(cuda, "CudaOps", lambda: "the cuda kernels")
    assert load_ops("auto") == "the cuda kernels"


def test_cuda_without_a_torch_for_it_is_an_error_that_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(KernelsUnavailable, match=r"need a torch that knows CUDA, this one is .*: install"):
        load_ops("cuda")


def test_cuda_without_a_device_is_an_error_that_says_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(KernelsUnavailable, match=r"need a CUDA device, but torch finds none: nvidia-smi"):
        load_ops("cuda")


def test_cuda_on_a_device_that_is_too_old_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "T4")
    with pytest.raises(KernelsUnavailable, match=r"need compute capability 8\.0, T4 has 7\.5"):
        load_ops("cuda")


def test_a_missing_cuda_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(KernelsUnavailable, match=r"the cuda kernels are not at .*make cuda"):
        cuda_library.CudaLibrary(tmp_path / "liboctavo_cuda.so")


def test_float16_is_refused_by_the_cpu_kernels_and_kept_by_the_reference() -> None:
    shape = KVCacheShape(2, 1, 1, 4, 8)
    with pytest.raises(KernelInputError, match="float16, but the cpu kernels have"):
        load_ops("cpu").allocate(shape, torch.float16)
    assert load_ops("reference").allocate(shape, torch.float16).dtype == torch.float16


def test_a_missing_library_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(KernelsUnavailable, match="make kernels"):
        CpuOps(tmp_path / library.CPU.file_name)


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_missing_kernels_are_an_error_and_never_a_fallback(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "what_is_missing", lambda: "a device")
    monkeypatch.setattr(library.resources, "files", lambda package: tmp_path)
    with pytest.raises(KernelsUnavailable, match="make kernels"):
        load_ops(name)  # type: ignore[arg-type]


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / library.CPU.file_name
    path.write_bytes(b"not a library")
    with pytest.raises(KernelsUnavailable, match="cannot be loaded"):
        KernelLibrary(path)


def test_a_library_of_another_abi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "ABI_VERSION", 99)
    with pytest.raises(KernelsUnavailable, match="ABI version 2, this package needs 99"):
        KernelLibrary()


def test_an_explicit_path_is_honoured() -> None:
    assert CpuOps(installed_library()).name == load_ops("cpu").name


def test_an_unknown_instruction_set_is_refused_and_the_old_one_kept() -> None:
    ops = CpuOps()
    before = ops.name
    with pytest.raises(KernelInputError, match='"sse9", must be auto, amx, avx512_bf16, avx512, avx2 or portable'):
        ops.select_isa("sse9")
    assert ops.name == before


@pytest.mark.parametrize(
    ("struct", "name"),
    [
        (library.CacheStruct, "octavo_cache"),
        (library.WriteKVParams, "octavo_write_kv_params"),
        (library.PagedAttentionParams, "octavo_paged_attention_params"),
        (library.CopyBlocksParams, "octavo_copy_blocks_params"),
        (library.SwapBlocksParams, "octavo_swap_blocks_params"),
        (row_structs.RotaryParams, "octavo_rotary_params"),
        (row_structs.NormParams, "octavo_norm_params"),
        (row_structs.ActivationParams, "octavo_activation_params"),
        (row_structs.SamplingRow, "octavo_sampling_row"),
        (row_structs.SampleParams, "octavo_sample_params"),
    ],
)
def test_structs_have_the_fields_of_the_header_in_its_order(struct: type[ctypes.Structure], name: str) -> None:
    headers = HEADER.read_text() + (INCLUDES / "octavo_cuda.h").read_text()
    declared = re.search(rf"typedef struct {name} {{(.*?)}} {name};", headers, re.DOTALL)
    assert declared is not None
    fields = re.findall(r"^\s+(?:const )?(\w+) (\*?)(\w+);", declared.group(1), re.MULTILINE)
    assert [(field, ctypes.c_void_p if star else C_TYPES[kind]) for kind, star, field in fields] == list(
        struct._fields_
    )


def test_the_header_has_the_abi_version_of_the_package() -> None:
    assert f"#define OCTAVO_ABI_VERSION {library.ABI_VERSION}\n" in HEADER.read_text()


def test_kernels_and_torch_share_one_pool_of_threads() -> None:
    program = (
        "from gpuworker.kernels import load_ops; load_ops('cpu')\n"
        "print(len({line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line}))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_pool_is_zero_and_starts_at_a_huge_page(dtype: torch.dtype) -> None:
    cache = load_ops("cpu").allocate(KVCacheShape(10, 3, 2, 16, 64), dtype)
    assert cache.pool.data_ptr() % HUGE_PAGE_BYTES == 0
    assert cache.pool.nbytes == 10 * cache.shape.block_bytes(dtype)
    assert not cache.pool.any()


def test_a_pool_without_blocks_is_allowed() -> None:
    assert load_ops("cpu").allocate(KVCacheShape(0, 3, 2, 16, 64), torch.float32).pool.shape[0] == 0


@pytest.mark.parametrize("num_blocks", [1 << 40, 1 << 60])  # past the addresses, and past what a size can say
def test_more_memory_than_there_are_addresses_is_refused_with_the_bytes(num_blocks: int) -> None:
    with pytest.raises(KernelError, match=r"cannot map \d+ bytes"):
        map_huge_pages(num_blocks * KVCacheShape(1, 3, 2, 16, 64).block_bytes(torch.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_size": 60}, "head_size is 60, must be a multiple of 8"),
        ({"block_size": 0}, "block_size is 0, must be at least 1"),
        ({"num_blocks": -1}, "num_blocks is -1"),
    ],
)
def test_an_impossible_shape_is_refused(change: dict[str, int], message: str) -> None:
    fields = {"num_blocks": 1, "num_layers": 1, "num_kv_heads": 1, "block_size": 16, "head_size": 64}
    with pytest.raises(KernelInputError, match=message):
        KVCacheShape(**{**fields, **change})


def test_a_cache_must_fit_its_shape_and_hold_a_supported_type() -> None:
    shape = KVCacheShape(2, 1, 1, 4, 8)
    with pytest.raises(KernelInputError, match=r"must be \(2, 1, 2, 1, 4, 8\)"):
        KVCache(shape, torch.zeros(3, 1, 2, 1, 4, 8))
    with pytest.raises(KernelInputError, match="float64"):
        KVCache(shape, torch.zeros(shape.dimensions, dtype=torch.float64))
    with pytest.raises(KernelInputError, match="contiguous"):
        KVCache(shape, torch.zeros(2, 1, 2, 1, 8, 4).transpose(-1, -2))


def test_a_batch_must_be_int32_columns_of_one_length() -> None:
    one = torch.ones(1, dtype=torch.int32)
    with pytest.raises(KernelInputError, match=r"query_starts.*int64"):
        AttentionBatch(torch.tensor([0, 1]), one, one.view(1, 1))
    with pytest.raises(KernelInputError, match=r"block_tables.*\(2, 1\)"):
        AttentionBatch(torch.tensor([0, 1], dtype=torch.int32), one, torch.zeros(2, 1, dtype=torch.int32))
