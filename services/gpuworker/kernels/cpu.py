"""``KernelOps`` over the C++ kernels for CPUs (``csrc/cpu``)."""

from pathlib import Path

import torch

from gpuworker.kernels.checks import check_pairs, check_pools, check_query, check_write
from gpuworker.kernels.memory import allocate_pool
from gpuworker.kernels.ops import AttentionBatch, KVCache, KVCacheShape
from gpuworker.library import (
    CacheStruct,
    CopyBlocksParams,
    KernelLibrary,
    PagedAttentionParams,
    SwapBlocksParams,
    WriteKVParams,
)

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1}


class CpuOps:
    """C++ kernels with the best instruction set of this machine. Not for use by several threads at once."""

    def __init__(self, library_path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``library_path``. Raises ``KernelsUnavailable``."""
        self._library = KernelLibrary(library_path)
        self._cache: KVCache | None = None  # whose pointers are kept
        self._cache_struct = CacheStruct()
        self._batch: AttentionBatch | None = None  # whose pointers are kept
        self._batch_pointers = (0, 0, 0)

    @property
    def name(self) -> str:
        """Which implementation this is, for people."""
        return f"cpu[{self._library.isa}]"

    def select_isa(self, isa: str) -> None:
        """Uses another instruction set in this process from now on ("auto": the best one); for tests."""
        self._library.select_isa(isa)

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``."""
        return allocate_pool(shape, dtype)

    def write_kv(
        self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor
    ) -> None:
        """See ``KernelOps``."""
        check_write(key, value, cache, layer, slot_mapping)
        params = WriteKVParams(
            self._struct_of(cache),
            key.data_ptr(),
            value.data_ptr(),
            slot_mapping.data_ptr(),
            key.shape[0],
            key.stride(0),
            value.stride(0),
            layer,
        )
        self._library.check(self._library.write_kv(params))

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        """See ``KernelOps``."""
        check_query(query, cache, layer)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        params = PagedAttentionParams(
            self._struct_of(cache),
            query.data_ptr(),
            output.data_ptr(),
            *self._pointers_of(batch),
            query.shape[0],
            query.stride(0),
            *batch.block_tables.shape,
            query.shape[1],
            layer,
            scale,
        )
        self._library.check(self._library.paged_attention(params))
        return output

    def copy_blocks(self, cache: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        params = CopyBlocksParams(self._struct_of(cache), pairs.data_ptr(), pairs.shape[0])
        self._library.check(self._library.copy_blocks(params))

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        check_pools(source, destination)
        params = SwapBlocksParams(_describe(source), _describe(destination), pairs.data_ptr(), pairs.shape[0])
        self._library.check(self._library.swap_blocks(params))

    def _struct_of(self, cache: KVCache) -> CacheStruct:
        if cache is not self._cache:
            self._cache, self._cache_struct = cache, _describe(cache)
        return self._cache_struct

    def _pointers_of(self, batch: AttentionBatch) -> tuple[int, int, int]:
        if batch is not self._batch:
            self._batch_pointers = (
                batch.query_starts.data_ptr(),
                batch.context_lens.data_ptr(),
                batch.block_tables.data_ptr(),
            )
            self._batch = batch
        return self._batch_pointers


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
