"""A bad argument is named with its limit, and nothing is written."""

from collections.abc import Callable

import pytest
import torch

from doubles.kv_contexts import (
    make_shape,
)
from gpuworker.kernels import AttentionBatch, KernelInputError, KernelOps, KVCache


def refused_write(ops: KernelOps, cache: KVCache, **changed: object) -> None:
    arguments = {
        "key": torch.zeros(2, 2, 64),
        "value": torch.zeros(2, 2, 64),
        "cache": cache,
        "layer": 0,
        "slot_mapping": torch.tensor([0, 1]),
    }
    ops.write_kv(**{**arguments, **changed})  # type: ignore[arg-type]


def refused_attention(ops: KernelOps, cache: KVCache, **changed: object) -> None:
    arguments = {
        "query": torch.zeros(2, 6, 64),
        "cache": cache,
        "layer": 0,
        "batch": AttentionBatch.from_lists([2], [20], [[0, 1]]),
        "scale": 1.0,
    }
    ops.paged_attention(**{**arguments, **changed})  # type: ignore[arg-type]


REFUSALS: list[tuple[Callable[[KernelOps, KVCache], None], str]] = [
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0, 48])), r"slot_mapping.* 48.*0\.\.47"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([-1, 0])), r"slot_mapping.* -1.*0\.\.47"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0, 1], dtype=torch.int32)), "slot_mapping.*int64"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0])), r"slot_mapping.*\(1,\)"),
    (lambda o, c: refused_write(o, c, key=torch.zeros(2, 3, 64)), r"key.*\(2, 3, 64\)"),
    (lambda o, c: refused_write(o, c, value=torch.zeros(2, 2, 64).bfloat16()), "value.*bfloat16.*float32"),
    (lambda o, c: refused_write(o, c, value=torch.zeros(3, 2, 64)), "value has 3 tokens"),
    (lambda o, c: refused_write(o, c, key=torch.zeros(2, 64, 2).transpose(1, 2)), "key has strides"),
    (lambda o, c: refused_write(o, c, layer=2), r"layer is 2.*0\.\.1"),
    (lambda o, c: refused_attention(o, c, layer=-1), r"layer is -1.*0\.\.1"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(2, 3, 64)), "3 heads.*multiple of the 2"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(2, 6, 32)), r"query.*\(2, 6, 32\)"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(3, 6, 64)), "query_starts.* 2.* 3"),
    (
        lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [20], [[0, 3]])),
        r"block_tables\[0\].* 3.*0\.\.2",
    ),
    (lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [33], [[0, 1]])), "33.*32 tokens"),
    (lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [1], [[0]])), "is 1.*2 new tokens"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [3, 2]])), r"source block.* 3.*0\.\.2"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [0, -1]])), r"destination block.* -1.*0\.\.2"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [2, 1]])), "destination block 1 is written more than once"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([0, 1])), r"pairs.*\[num_pairs, 2\]"),
    (lambda o, c: o.swap_blocks(c, c, torch.tensor([[0, 1]])), "same pool"),
    (lambda o, c: o.swap_blocks(c, o.allocate(make_shape(3, 8), c.dtype), torch.tensor([[0, 1]])), "a block of source"),
    (lambda o, c: o.swap_blocks(o.allocate(c.shape, torch.bfloat16), c, torch.tensor([[0, 1]])), "source holds"),
    (
        lambda o, c: o.swap_blocks(o.allocate(make_shape(9), c.dtype), c, torch.tensor([[0, 1], [8, 3]])),
        r"destination block.* 3.*0\.\.2",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_a_bad_argument_is_named_with_its_limit_and_nothing_is_written(
    ops: KernelOps, call: Callable[[KernelOps, KVCache], None], message: str
) -> None:
    cache = ops.allocate(make_shape(3), torch.float32)
    cache.pool.normal_()
    before = cache.pool.clone()
    with pytest.raises(KernelInputError, match=message):
        call(ops, cache)
    assert torch.equal(cache.pool, before)
