"""Copies and swaps of whole blocks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles.kv_contexts import (
    NAN,
)
from gpuworker.kernels import KernelOps, KVCache, KVCacheShape


def numbered_pool(ops: KernelOps, num_blocks: int, first: int = 0) -> KVCache:
    """Every element of block b is first + b."""
    cache = ops.allocate(KVCacheShape(num_blocks, 2, 1, 4, 64), torch.float32)
    cache.pool.add_(torch.arange(first, first + num_blocks).view(-1, 1, 1, 1, 1, 1))
    return cache


def block_numbers(cache: KVCache) -> list[int]:
    firsts = cache.pool.flatten(1)[:, :1]
    assert (cache.pool.flatten(1) == firsts).all(), "a block was copied in part"
    return firsts.flatten().int().tolist()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([[0, 3]], [0, 1, 2, 0, 4]),
        ([[0, 1], [1, 2], [2, 3]], [0, 0, 1, 2, 4]),
        ([[2, 3], [1, 2], [0, 1]], [0, 0, 1, 2, 4]),
        ([[0, 1], [1, 0]], [1, 0, 2, 3, 4]),
        ([[0, 1], [1, 2], [2, 0], [0, 3], [4, 4]], [2, 0, 1, 0, 4]),
        ([[0, 1], [1, 0], [2, 3], [3, 2]], [1, 0, 3, 2, 4]),
    ],
    ids=["one", "chain", "chain backwards", "swap", "cycle with a tail", "two cycles"],
)
def test_blocks_are_copied_as_if_all_were_read_first(
    ops: KernelOps, pairs: list[list[int]], expected: list[int]
) -> None:
    cache = numbered_pool(ops, 5)
    ops.copy_blocks(cache, torch.tensor(pairs))
    assert block_numbers(cache) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_any_copies_equal_a_gather_followed_by_a_scatter(ops: KernelOps, moves: dict[int, int]) -> None:
    cache = numbered_pool(ops, 10)
    pairs = [[source, destination] for destination, source in moves.items()]
    ops.copy_blocks(cache, torch.tensor(pairs, dtype=torch.int64).view(-1, 2))
    assert block_numbers(cache) == [moves.get(block, block) for block in range(10)]


def test_blocks_are_swapped_out_and_in_again(ops: KernelOps) -> None:
    device, host = numbered_pool(ops, 8), numbered_pool(ops, 4, first=100)
    ops.swap_blocks(device, host, torch.tensor([[5, 0], [6, 1], [2, 3]]))
    assert block_numbers(host) == [5, 6, 102, 2]
    assert block_numbers(device) == list(range(8))
    ops.swap_blocks(host, device, torch.tensor([[3, 7], [0, 0], [1, 1], [2, 6]]))
    assert block_numbers(device) == [5, 6, 2, 3, 4, 5, 102, 2]


def test_blocks_go_to_host_memory_and_come_back(ops: KernelOps) -> None:
    device = numbered_pool(ops, 8)
    host = ops.allocate_host(replace(device.shape, num_blocks=4), device.dtype)
    assert host.pool.device.type == "cpu"
    ops.swap_blocks(device, host, torch.tensor([[5, 0], [6, 1], [2, 3]]))
    device.pool.fill_(NAN)
    ops.swap_blocks(host, device, torch.tensor([[0, 7], [1, 0], [3, 1]]))
    assert device.pool[[7, 0, 1], 0, 0, 0, 0, 0].tolist() == [5, 6, 2]
