"""Memory never changes the answer: chunks, neighbours, threads and block sizes leave every bit alone."""

import pytest
import torch

from doubles.kv_contexts import (
    DTYPES,
    Contexts,
    is_cuda,
    is_emulated,
    slots,
    write_contexts,
)
from gpuworker.kernels import AttentionBatch, KernelOps


def attend_in_chunks(ops: KernelOps, contexts: Contexts, query: torch.Tensor, chunk: int) -> torch.Tensor:
    """The whole first sequence, ``chunk`` tokens at a time; one at a time is a decode."""
    outputs = []
    for part in query.split(chunk):
        done = sum(map(len, outputs)) + len(part)
        batch = AttentionBatch.from_lists([len(part)], [done], contexts.tables[:1])
        outputs.append(ops.paged_attention(part, contexts.cache, 1, batch, 0.125))
    return torch.cat(outputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [1, 3])
def test_decoding_and_prefilling_in_any_chunks_give_the_same_bits(
    ops: KernelOps, dtype: torch.dtype, group: int
) -> None:
    length, head_size = 72 if is_emulated(ops) else 1100, 80 if is_cuda(ops) else 72
    contexts = write_contexts(ops, [length], dtype=dtype, head_size=head_size)
    query = torch.randn(length, 2 * group, head_size).to(dtype)
    decoded = attend_in_chunks(ops, contexts, query, 1)
    for chunk in (2, 7, 64, 500, length):
        assert torch.equal(attend_in_chunks(ops, contexts, query, chunk), decoded), f"chunks of {chunk}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_threads_leave_every_bit_alone(ops: KernelOps, dtype: torch.dtype) -> None:
    torch.set_num_threads(2)
    contexts = write_contexts(ops, [1100, 40, 700, 5], dtype=dtype)
    query_lens = [1, 30, 80, 1]
    query = torch.randn(sum(query_lens), 6, 64).to(dtype)
    together = ops.paged_attention(query, contexts.cache, 1, contexts.batch(query_lens), 0.125).split(query_lens)
    torch.set_num_threads(1)
    for seq, part in enumerate(query.split(query_lens)):
        batch = AttentionBatch.from_lists([len(part)], [contexts.lens[seq]], [contexts.tables[seq]])
        assert torch.equal(ops.paged_attention(part, contexts.cache, 1, batch, 0.125), together[seq])


def test_the_block_size_leaves_every_bit_alone(ops: KernelOps) -> None:
    query, keys, values = torch.randn(20, 6, 64), torch.randn(700, 2, 64), torch.randn(700, 2, 64)
    outputs = []
    for block_size in (1, 16, 64 if is_cuda(ops) else 48, 256):
        contexts = write_contexts(ops, [700], block_size=block_size)
        ops.write_kv(keys, values, contexts.cache, 1, slots(contexts.tables[0], block_size, 700))
        outputs.append(ops.paged_attention(query, contexts.cache, 1, contexts.batch([20]), 0.125))
    assert all(torch.equal(output, outputs[0]) for output in outputs)
