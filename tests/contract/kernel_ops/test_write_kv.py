"""Keys and values land in their slots."""

import pytest
import torch

from doubles.kv_contexts import (
    DTYPES,
    NAN,
    make_shape,
    write_contexts,
)
from doubles.stored_kv import stored_kv
from gpuworker.kernels import KernelOps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("block_size", "head_size"), [(16, 64), (4, 64), (32, 72)])
def test_keys_and_values_land_in_their_slots_and_nowhere_else(
    ops: KernelOps, dtype: torch.dtype, block_size: int, head_size: int
) -> None:
    contexts = write_contexts(ops, [70], dtype=dtype, block_size=block_size, head_size=head_size)
    untouched, written = (stored_kv(ops, contexts.cache, layer) for layer in (0, 1))
    expected = torch.full_like(written, NAN)
    for position in range(70):
        block, offset = contexts.tables[0][position // block_size], position % block_size
        expected[block, 0, :, offset] = contexts.keys[0][position]
        expected[block, 1, :, offset] = contexts.values[0][position]
    torch.testing.assert_close(written, expected, rtol=0, atol=0, equal_nan=True)
    assert untouched.isnan().all()


def test_keys_may_be_a_slice_of_a_fused_projection(ops: KernelOps) -> None:
    cache = ops.allocate(make_shape(2), torch.float32)
    fused = torch.randn(3, 4, 64)
    ops.write_kv(fused[:, :2], fused[:, 2:], cache, 0, torch.tensor([16, 17, 18]))
    assert torch.equal(stored_kv(ops, cache, 0)[1, :, :, :3].movedim(2, 0).reshape(3, 4, 64), fused)
