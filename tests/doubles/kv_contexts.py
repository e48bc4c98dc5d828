"""Sequences with random KV in a pool, and what attention over them should give."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch

from doubles import emulated_cuda
from gpuworker.kernels import AttentionBatch, KernelOps, KVCache, KVCacheShape
from gpuworker.kernels.cpu import CpuOps
from gpuworker.kernels.cuda import CudaOps, Splitting

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NAN = float("nan")
TOLERANCES = {torch.float32: (2e-6, 2e-6), torch.bfloat16: (2**-8, 2**-12), torch.float16: (2**-11, 2**-12)}


@dataclass(frozen=True)
class Contexts:
    """Sequences whose KV lies in a pool that holds NaN everywhere else."""

    cache: KVCache
    layer: int
    lens: Sequence[int]
    tables: Sequence[Sequence[int]]
    keys: Sequence[torch.Tensor]  # each [context_len, num_kv_heads, head_size]
    values: Sequence[torch.Tensor]

    def batch(self, query_lens: Sequence[int]) -> AttentionBatch:
        return AttentionBatch.from_lists(query_lens, self.lens, self.tables)


def slots(table: Sequence[int], block_size: int, length: int) -> torch.Tensor:
    return torch.tensor(
        [table[i // block_size] * block_size + i % block_size for i in range(length)], dtype=torch.int64
    )


def make_shape(num_blocks: int, block_size: int = 16, *, num_kv_heads: int = 2, head_size: int = 64) -> KVCacheShape:
    return KVCacheShape(num_blocks, 2, num_kv_heads, block_size, head_size)


def is_cuda(ops: KernelOps) -> bool:
    return isinstance(ops, CudaOps)


def is_emulated(ops: KernelOps) -> bool:
    return isinstance(ops, CudaOps) and ops.device.torch_device.type == "cpu"


def skip_what_is_not_offered(ops: KernelOps, shape: KVCacheShape, dtype: torch.dtype, longest: int) -> None:
    if isinstance(ops, CpuOps) and dtype == torch.float16:
        pytest.skip("no CPU kernel has this type")
    if isinstance(ops, CudaOps) and not emulated_cuda.supports(shape):
        pytest.skip("no CUDA kernel has this shape")
    if isinstance(ops, CudaOps) and ops.splitting is Splitting.ALWAYS and longest <= 512:
        pytest.skip("too short to be split, so the same as one pass")


def write_contexts(
    ops: KernelOps, lens: Sequence[int], *, dtype: torch.dtype = torch.float32, seed: int = 0, **shape: int
) -> Contexts:
    """Writes random KV for sequences of these lengths into scattered blocks of a pool with blocks to spare."""
    torch.manual_seed(seed)
    block_size = shape.get("block_size", 16)
    nums = [-(-length // block_size) for length in lens]
    pool_shape = make_shape(sum(nums) + 5, **shape)
    skip_what_is_not_offered(ops, pool_shape, dtype, max(lens))
    cache = ops.allocate(pool_shape, dtype)
    cache.pool.fill_(NAN)
    ids = iter(torch.randperm(cache.shape.num_blocks).tolist())
    tables = [[next(ids) for _ in range(num)] for num in nums]
    token = (cache.shape.num_kv_heads, cache.shape.head_size)
    keys = [torch.randn(length, *token).to(dtype) for length in lens]
    values = [torch.randn(length, *token).to(dtype) for length in lens]
    mapping = torch.cat([slots(table, block_size, length) for table, length in zip(tables, lens, strict=True)])
    ops.write_kv(torch.cat(keys), torch.cat(values), cache, 1, mapping)
    return Contexts(cache, 1, lens, tables, keys, values)


def dense_attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention of the last tokens of one context in float64: [num_new, num_heads, head_size]."""
    group = query.shape[1] // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.double(), k) * scale
    positions = torch.arange(len(keys))
    hidden = positions[None, :] > positions[len(keys) - len(query) :, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def assert_attends(ops: KernelOps, contexts: Contexts, query_lens: Sequence[int], group: int = 3) -> None:
    """The last ``query_lens`` tokens of the contexts, in one call, come out as from dense attention."""
    shape, dtype = contexts.cache.shape, contexts.cache.dtype
    scale = shape.head_size**-0.5
    query = torch.randn(sum(query_lens), shape.num_kv_heads * group, shape.head_size).to(dtype)
    output = ops.paged_attention(query, contexts.cache, contexts.layer, contexts.batch(query_lens), scale)
    assert output.dtype == dtype
    parts = zip(query.split(list(query_lens)), contexts.keys, contexts.values, strict=True)
    expected = torch.cat([dense_attention(q, k, v, scale) for q, k, v in parts])
    relative, absolute = TOLERANCES[dtype]
    if is_cuda(ops) and dtype != torch.float32:
        absolute = relative * 2  # tensor cores take the weights in 16 bits
    torch.testing.assert_close(output.double(), expected, rtol=relative, atol=absolute)
