"""``KernelOps`` in plain torch: slow, short, and what the other implementations are held against."""

import torch

from gpuworker.errors import KernelInputError
from gpuworker.kernels.checks import (
    check_batch,
    check_pairs,
    check_pools,
    check_query,
    check_write,
    require_in_range,
)
from gpuworker.kernels.memory import allocate_pool
from gpuworker.kernels.ops import AttentionBatch, KVCache, KVCacheShape

K, V = 0, 1


class ReferenceOps:
    """Plain torch."""

    @property
    def name(self) -> str:
        """Which implementation this is, for people."""
        return "reference"

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``."""
        return allocate_pool(shape, dtype)

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``."""
        return allocate_pool(shape, dtype)

    def write_kv(
        self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor
    ) -> None:
        """See ``KernelOps``."""
        check_write(key, value, cache, layer, slot_mapping)
        require_in_range("slot_mapping", slot_mapping, cache.shape.num_slots)
        block_ids, offsets = slot_mapping // cache.shape.block_size, slot_mapping % cache.shape.block_size
        cache.pool[:, layer, K][block_ids, :, offsets] = key
        cache.pool[:, layer, V][block_ids, :, offsets] = value

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        """See ``KernelOps``. One token at a time, so that no product's shape depends on the batch or the chunk."""
        check_query(query, cache, layer)
        check_batch(batch, query.shape[0], cache.shape)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        starts = batch.query_starts.tolist()
        for seq_index, context_len in enumerate(batch.context_lens.tolist()):
            keys, values = _gather(cache, layer, batch.block_tables[seq_index], context_len)
            first, end = starts[seq_index], starts[seq_index + 1]
            for token in range(first, end):
                visible = context_len - (end - 1 - token)
                output[token] = _attend(query[token], keys[:, :visible], values[:, :visible], scale)
        return output

    def copy_blocks(self, cache: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        _check_moves(pairs, cache.shape.num_blocks, cache.shape.num_blocks)
        cache.pool[pairs[:, 1]] = cache.pool[pairs[:, 0]]  # the right side is a copy

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        check_pools(source, destination)
        _check_moves(pairs, source.shape.num_blocks, destination.shape.num_blocks)
        destination.pool[pairs[:, 1]] = source.pool[pairs[:, 0]]


def _gather(
    cache: KVCache, layer: int, block_table: torch.Tensor, context_len: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a context in float32, each [num_kv_heads, context_len, head_size]."""
    positions = torch.arange(context_len)
    block_ids = block_table.long()[positions // cache.shape.block_size]
    offsets = positions % cache.shape.block_size
    keys = cache.pool[:, layer, K][block_ids, :, offsets]
    values = cache.pool[:, layer, V][block_ids, :, offsets]
    return keys.transpose(0, 1).float(), values.transpose(0, 1).float()


def _attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of one token: [num_heads, head_size] over [num_kv_heads, visible, head_size]."""
    grouped = query.float().view(keys.shape[0], -1, keys.shape[2])  # [num_kv_heads, heads sharing one, head_size]
    weights = torch.softmax(grouped @ keys.transpose(1, 2) * scale, dim=-1)
    return (weights @ values).view(query.shape).to(query.dtype)


def _check_moves(pairs: torch.Tensor, num_sources: int, num_destinations: int) -> None:
    require_in_range("source block", pairs[:, 0], num_sources)
    require_in_range("destination block", pairs[:, 1], num_destinations)
    twice = (torch.bincount(pairs[:, 1]) > 1).nonzero()
    if twice.numel():
        raise KernelInputError(f"destination block {twice[0].item()} is written more than once")
