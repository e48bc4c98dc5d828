"""Reads what a pool holds, whatever layout an implementation gives the inside of a block."""

import torch

from gpuworker.kernels import KernelOps, KVCache
from gpuworker.kernels.cpu import CpuOps

GROUP = 16  # slots that the CPU's layout packs together (csrc/cpu/attention_blocks.h)


def stored_kv(ops: KernelOps, cache: KVCache, layer: int) -> torch.Tensor:
    """A copy of one layer: [num_blocks, 2, num_kv_heads, block_size, head_size]."""
    if not isinstance(ops, CpuOps):
        return cache.pool[:, layer].clone()
    shape = cache.shape
    heads = cache.pool[:, layer].reshape(shape.num_blocks, shape.num_kv_heads, 2, shape.block_size, shape.head_size)
    if shape.block_size % GROUP:
        return heads.transpose(1, 2).clone()
    groups = heads.reshape(shape.num_blocks, shape.num_kv_heads, 2, -1, GROUP * shape.head_size)
    keys, values = _keys(groups[:, :, 0], shape.head_size), _values(groups[:, :, 1], shape.head_size)
    return torch.stack((keys, values), dim=1).flatten(3, 4)


def _keys(groups: torch.Tensor, head_size: int) -> torch.Tensor:
    pair = 4 // groups.itemsize
    return groups.unflatten(-1, (head_size // pair, GROUP, pair)).movedim(-2, -3).flatten(-2)


def _values(groups: torch.Tensor, head_size: int) -> torch.Tensor:
    pair = 4 // groups.itemsize
    columns = groups.split(GROUP * GROUP, dim=-1)
    return torch.cat([c.unflatten(-1, (GROUP // pair, -1, pair)).mT.flatten(-3, -2) for c in columns], dim=-1)
