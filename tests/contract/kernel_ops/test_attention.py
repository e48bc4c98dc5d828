"""Paged attention, held against dense attention in float64."""

from dataclasses import replace

import pytest
import torch

from doubles.kv_contexts import (
    DTYPES,
    Contexts,
    assert_attends,
    dense_attention,
    slots,
    write_contexts,
)
from gpuworker.kernels import AttentionBatch, KernelOps, KVCacheShape


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 4, 8, 16, 32, 128, 256])
def test_decodes_and_chunks_share_a_call_at_every_block_size(
    ops: KernelOps, block_size: int, dtype: torch.dtype
) -> None:
    contexts = write_contexts(ops, [1, 37, 300, 130, 600], block_size=block_size, dtype=dtype)
    assert_attends(ops, contexts, [1, 37, 1, 45, 3])


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 511, 512, 513, 1025])
def test_context_lengths_around_the_borders_of_blocks_tiles_and_partitions(ops: KernelOps, length: int) -> None:
    assert_attends(ops, write_contexts(ops, [length], block_size=4), [1])
    assert_attends(ops, write_contexts(ops, [length], block_size=4), [min(length, 40)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [8, 64, 72, 80, 96, 128])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 40])
def test_head_sizes_and_query_heads_that_share_a_kv_head(
    ops: KernelOps, head_size: int, group: int, dtype: torch.dtype
) -> None:
    assert_attends(ops, write_contexts(ops, [50, 20], head_size=head_size, dtype=dtype), [9, 1], group)


def test_sequences_that_share_blocks_and_a_block_that_repeats(ops: KernelOps) -> None:
    one = write_contexts(ops, [48])
    table, keys, values = one.tables[0], one.keys[0], one.values[0]
    again = [table[2], table[2], table[0]]
    order = torch.cat([torch.arange(32, 48), torch.arange(32, 48), torch.arange(0, 16)])
    shared = replace(
        one,
        lens=[48, 20, 48],
        tables=[table, table[:2], again],
        keys=[keys, keys[:20], keys[order]],
        values=[values, values[:20], values[order]],
    )
    assert_attends(ops, shared, [2, 1, 1])


def test_queries_may_be_a_slice_of_a_fused_projection(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [20])
    fused = torch.randn(5, 10, 64)
    sliced = ops.paged_attention(fused[:, :6], contexts.cache, 1, contexts.batch([5]), 0.125)
    assert torch.equal(
        sliced, ops.paged_attention(fused[:, :6].contiguous(), contexts.cache, 1, contexts.batch([5]), 0.125)
    )


def test_scores_far_apart_neither_overflow_nor_vanish(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [600])
    query = torch.randn(1, 6, 64) * 300
    output = ops.paged_attention(query, contexts.cache, 1, contexts.batch([1]), 1.0)
    expected = dense_attention(query, contexts.keys[0], contexts.values[0], 1.0)
    torch.testing.assert_close(output.double(), expected, rtol=1e-2, atol=1e-2)


def test_an_empty_batch_and_a_sequence_without_new_tokens_give_nothing(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [20, 0, 30])
    nothing = torch.empty(0, 6, 64)
    assert ops.paged_attention(nothing, contexts.cache, 1, AttentionBatch.from_lists([], [], []), 1.0).shape == (
        0,
        6,
        64,
    )
    assert_attends(ops, contexts, [0, 0, 2])
    before = contexts.cache.pool.clone()
    ops.write_kv(torch.empty(0, 2, 64), torch.empty(0, 2, 64), contexts.cache, 0, torch.empty(0, dtype=torch.int64))
    ops.copy_blocks(contexts.cache, torch.empty(0, 2, dtype=torch.int64))
    torch.testing.assert_close(contexts.cache.pool, before, rtol=0, atol=0, equal_nan=True)


def test_offsets_beyond_two_to_the_31_elements(ops: KernelOps) -> None:
    """The pool spans 5 GiB of address space, of which the few blocks used are ever touched."""
    cache = ops.allocate(KVCacheShape(5000, 1, 8, 256, 128), torch.bfloat16)
    assert cache.pool.numel() > 2**31
    table = [4999, 0, 4097]
    keys, values = (torch.randn(600, 8, 128).bfloat16() for _ in range(2))
    ops.write_kv(keys, values, cache, 0, slots(table, 256, 600))
    assert_attends(ops, Contexts(cache, 0, [600], [table], [keys], [values]), [2], group=1)
    ops.copy_blocks(cache, torch.tensor([[4097, 4998]]))
    assert torch.equal(cache.pool[4998], cache.pool[4097])
