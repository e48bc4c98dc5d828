"""``KernelOps`` over the CUDA kernels as the emulation runs them on the CPU (``csrc/emulation``)."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from gpuworker.kernels import AttentionBatch, KernelError, KernelInputError, KVCache, KVCacheShape
from gpuworker.kernels.checks import (
    check_batch,
    check_pairs,
    check_pools,
    check_query,
    check_write,
    require_in_range,
)
from gpuworker.kernels.cpu import DTYPE_CODES
from gpuworker.kernels.memory import allocate_pool
from gpuworker.library import (
    CacheStruct,
    CopyBlocksParams,
    PagedAttentionParams,
    SwapBlocksParams,
    WriteKVParams,
)

LIBRARY = Path(__file__).parents[2] / "build" / "emulated" / "tests" / "liboctavo_cuda_emulated.so"  # make emulated
HEAD_SIZES = (64, 80, 96, 128, 256)
INVALID_ARGUMENT = 1
DEFAULT_STREAM = None


class EmulatedCudaOps:
    """CUDA kernels on one CPU thread; attention in one pass, or split over the context where that is longer than 512.

    Device memory is the process's own. The kernels cannot check what lies in device memory, so ids are checked here.
    """

    def __init__(self, *, split: bool) -> None:
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.octavo_last_error.restype = ctypes.c_char_p
        self._library.octavo_cuda_attention_workspace_bytes.restype = ctypes.c_int64
        self._library.octavo_cuda_attention_workspace_bytes.argtypes = (PagedAttentionParams,)
        self._split = split

    @property
    def name(self) -> str:
        return f"emulated-cuda[{'split' if self._split else 'one pass'}]"

    @staticmethod
    def supports(shape: KVCacheShape) -> bool:
        """Whether attention has kernels for this shape."""
        power_of_two = shape.block_size & (shape.block_size - 1) == 0
        return shape.head_size in HEAD_SIZES and power_of_two and shape.block_size <= 256

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        return allocate_pool(shape, dtype)

    def write_kv(
        self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor
    ) -> None:
        check_write(key, value, cache, layer, slot_mapping)
        require_in_range("slot_mapping", slot_mapping, cache.shape.num_slots)
        params = WriteKVParams(
            _describe(cache),
            key.data_ptr(),
            value.data_ptr(),
            slot_mapping.data_ptr(),
            key.shape[0],
            key.stride(0),
            value.stride(0),
            layer,
        )
        self._run(self._library.octavo_cuda_write_kv, params, DEFAULT_STREAM)

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        check_query(query, cache, layer)
        check_batch(batch, query.shape[0], cache.shape)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        params = PagedAttentionParams(
            _describe(cache),
            query.data_ptr(),
            output.data_ptr(),
            batch.query_starts.data_ptr(),
            batch.context_lens.data_ptr(),
            batch.block_tables.data_ptr(),
            query.shape[0],
            query.stride(0),
            *batch.block_tables.shape,
            query.shape[1],
            layer,
            scale,
        )
        num_bytes = self._library.octavo_cuda_attention_workspace_bytes(params) if self._split else 0
        workspace = torch.full((num_bytes // 4,), torch.nan)
        pointer = ctypes.c_void_p(workspace.data_ptr() if num_bytes else None)
        self._run(self._library.octavo_cuda_paged_attention, params, pointer, DEFAULT_STREAM)
        return output

    def copy_blocks(self, cache: KVCache, pairs: torch.Tensor) -> None:
        check_pairs(pairs)
        params = CopyBlocksParams(_describe(cache), pairs.data_ptr(), pairs.shape[0])
        self._run(self._library.octavo_cuda_copy_blocks, params, DEFAULT_STREAM)

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
        check_pairs(pairs)
        check_pools(source, destination)
        params = SwapBlocksParams(_describe(source), _describe(destination), pairs.data_ptr(), pairs.shape[0])
        self._run(self._library.octavo_cuda_swap_blocks, params, DEFAULT_STREAM, DEFAULT_STREAM)

    def _run(self, function: Callable[..., int], *arguments: object) -> None:
        status = function(*arguments)
        if status:
            error = KernelInputError if status == INVALID_ARGUMENT else KernelError
            raise error(self._library.octavo_last_error().decode())


def _describe(cache: KVCache) -> CacheStruct:
    shape = cache.shape
    return CacheStruct(
        cache.pool.data_ptr(),
        shape.num_blocks,
        shape.num_layers,
        shape.num_kv_heads,
        shape.block_size,
        shape.head_size,
        DTYPE_CODES[cache.dtype],
    )
