"""The suite can fail."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from doubles.kv_contexts import (
    assert_attends,
    write_contexts,
)
from gpuworker.kernels import AttentionBatch, KernelOps, KVCache


class FaultyOps:
    """Attention with a planted fault: the arguments are bent on their way in."""

    def __init__(self, ops: KernelOps, fault: Callable[[AttentionBatch, float], tuple[AttentionBatch, float]]) -> None:
        self._ops, self._fault = ops, fault

    def __getattr__(self, name: str) -> object:
        return getattr(self._ops, name)

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        return self._ops.paged_attention(query, cache, layer, *self._fault(batch, scale))


FAULTS = {
    "one token short": lambda b, s: (replace(b, context_lens=b.context_lens - 1), s),
    "one slot too far": lambda b, s: (replace(b, context_lens=b.context_lens + 1), s),
    "blocks exchanged": lambda b, s: (replace(b, block_tables=b.block_tables.flip(1).contiguous()), s),
    "scale a little off": lambda b, s: (b, s * 1.001),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(ops: KernelOps, fault: str) -> None:
    contexts = write_contexts(ops, [40])
    assert_attends(ops, contexts, [3])
    with pytest.raises(AssertionError):
        assert_attends(FaultyOps(ops, FAULTS[fault]), contexts, [3])  # type: ignore[arg-type]
