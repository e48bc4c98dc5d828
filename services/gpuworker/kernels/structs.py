"""Structs of the calls that every library has, made from tensors."""

import torch
from torch import Tensor

from gpuworker.kernels.ops import AttentionBatch, KVCache
from gpuworker.library import CacheStruct, CopyBlocksParams, PagedAttentionParams, SwapBlocksParams, WriteKVParams

DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # octavo_dtype


class CallStructs:
    """Makes the structs. Those of the last cache and batch are kept, since a step calls once a layer."""

    def __init__(self) -> None:
        self._cache: KVCache | None = None  # whose struct is kept
        self._cache_struct = CacheStruct()
        self._batch: AttentionBatch | None = None  # whose pointers are kept
        self._batch_pointers = (0, 0, 0)

    def write_kv(self, key: Tensor, value: Tensor, cache: KVCache, layer: int, slot_mapping: Tensor) -> WriteKVParams:
        """See ``KernelOps.write_kv``."""
        return WriteKVParams(
            self._struct_of(cache),
            key.data_ptr(),
            value.data_ptr(),
            slot_mapping.data_ptr(),
            key.shape[0],
            key.stride(0),
            value.stride(0),
            layer,
        )

    def paged_attention(
        self, query: Tensor, output: Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> PagedAttentionParams:
        """See ``KernelOps.paged_attention``; ``output`` is [num_tokens, num_heads, head_size], contiguous."""
        return PagedAttentionParams(
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

    def copy_blocks(self, cache: KVCache, pairs: Tensor) -> CopyBlocksParams:
        """See ``KernelOps.copy_blocks``."""
        return CopyBlocksParams(self._struct_of(cache), pairs.data_ptr(), pairs.shape[0])

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: Tensor) -> SwapBlocksParams:
        """See ``KernelOps.swap_blocks``."""
        return SwapBlocksParams(_describe(source), _describe(destination), pairs.data_ptr(), pairs.shape[0])

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
