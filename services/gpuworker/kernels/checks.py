"""Checks that implementations of ``KernelOps`` make before they touch memory: of shapes and types, and of values."""

import torch

from gpuworker.errors import KernelInputError
from gpuworker.kernels.ops import AttentionBatch, KVCache, KVCacheShape


def check_tokens(name: str, tensor: torch.Tensor, cache: KVCache, num_heads: int) -> None:
    """``tensor`` must be [num_tokens, num_heads, head_size] of the cache's dtype with contiguous rows."""
    head_size, pool_dtype = cache.shape.head_size, cache.pool.dtype
    if tensor.shape[1:] != (num_heads, head_size):
        raise KernelInputError(
            f"{name} has shape {tuple(tensor.shape)}, must be [num_tokens, {num_heads}, {head_size}]"
        )
    if tensor.dtype != pool_dtype:
        raise KernelInputError(f"{name} is {tensor.dtype}, the cache holds {pool_dtype}")
    _, head_stride, element_stride = tensor.stride()
    if element_stride != 1 or (num_heads > 1 and head_stride != head_size):
        raise KernelInputError(f"{name} has strides {tensor.stride()}, the heads of a token must be contiguous")


def check_layer(layer: int, cache: KVCache) -> None:
    """``layer`` must be one of the cache's."""
    if not 0 <= layer < cache.shape.num_layers:
        raise KernelInputError(f"layer is {layer}, must be in 0..{cache.shape.num_layers - 1}")


def check_write(key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor) -> None:
    """Shapes and types of ``write_kv``; the slots themselves are left to the implementation."""
    check_layer(layer, cache)
    check_tokens("key", key, cache, cache.shape.num_kv_heads)
    check_tokens("value", value, cache, cache.shape.num_kv_heads)
    if value.shape[0] != key.shape[0]:
        raise KernelInputError(f"value has {value.shape[0]} tokens, key has {key.shape[0]}")
    if slot_mapping.dtype != torch.int64 or slot_mapping.shape != key.shape[:1] or not slot_mapping.is_contiguous():
        raise KernelInputError(
            f"slot_mapping is {slot_mapping.dtype} of shape {tuple(slot_mapping.shape)}, "
            f"must be contiguous torch.int64 of shape {tuple(key.shape[:1])}"
        )


def check_query(query: torch.Tensor, cache: KVCache, layer: int) -> None:
    """Shape and type of the query of ``paged_attention``."""
    check_layer(layer, cache)
    num_heads = query.shape[1] if query.dim() == 3 else 0
    check_tokens("query", query, cache, num_heads)
    if num_heads < 1 or num_heads % cache.shape.num_kv_heads:
        raise KernelInputError(
            f"query has {num_heads} heads, must be a positive multiple of the {cache.shape.num_kv_heads} KV heads"
        )


def check_pairs(pairs: torch.Tensor) -> None:
    """Shape and type of a list of block copies."""
    if pairs.dtype != torch.int64 or pairs.dim() != 2 or pairs.shape[1] != 2 or not pairs.is_contiguous():
        raise KernelInputError(
            f"pairs is {pairs.dtype} of shape {tuple(pairs.shape)}, "
            "must be contiguous torch.int64 of shape [num_pairs, 2]"
        )


def check_pools(source: KVCache, destination: KVCache) -> None:
    """Two pools between which blocks can be swapped: different ones that differ in their number of blocks at most."""
    if source.pool is destination.pool:
        raise KernelInputError("source and destination are the same pool; copy_blocks copies inside a pool")
    if source.dtype != destination.dtype:
        raise KernelInputError(f"source holds {source.dtype}, destination {destination.dtype}")
    source_block, destination_block = source.shape.dimensions[1:], destination.shape.dimensions[1:]
    if source_block != destination_block:
        raise KernelInputError(f"a block of source is {source_block}, a block of destination {destination_block}")


def check_batch(batch: AttentionBatch, num_tokens: int, shape: KVCacheShape) -> None:
    """``batch`` must cover the query's tokens, and its tables the contexts; reads every value."""
    starts = batch.query_starts.tolist()
    if starts[0] != 0 or starts[-1] != num_tokens:
        raise KernelInputError(f"query_starts runs from {starts[0]} to {starts[-1]}, must run from 0 to {num_tokens}")
    for seq_index, context_len in enumerate(batch.context_lens.tolist()):
        num_new = starts[seq_index + 1] - starts[seq_index]
        if num_new < 0 or context_len < num_new:
            raise KernelInputError(f"context_lens[{seq_index}] is {context_len} with {num_new} new tokens")
        num_blocks = -(-context_len // shape.block_size)
        if num_blocks > batch.block_tables.shape[1]:
            raise KernelInputError(
                f"context_lens[{seq_index}] is {context_len}, block_tables has room for "
                f"{batch.block_tables.shape[1] * shape.block_size} tokens"
            )
        require_in_range(f"block_tables[{seq_index}]", batch.block_tables[seq_index, :num_blocks], shape.num_blocks)


def require_in_range(name: str, ids: torch.Tensor, limit: int) -> None:
    """``ids`` must be in 0..limit - 1."""
    outside = ids[(ids < 0) | (ids >= limit)]
    if outside.numel():
        raise KernelInputError(f"{name} holds {outside[0]}, must be in 0..{limit - 1}")
