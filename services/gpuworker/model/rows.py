"""What a model does to each token's row between two matrix products, behind an interface, and in plain torch."""

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from gpuworker.model.rotary import Rotary, rotate


class RowOps(Protocol):
    """Operations on rows. What runs along the residual stream is float32, the rest has the weights' type."""

    def add_and_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """Adds ``update`` to ``residual`` in place and returns the RMS norm of the sum, in the type of the products.

        ``residual``: [num_tokens, hidden] float32. ``update``: [num_tokens, hidden]; None adds nothing. ``weight``:
        [hidden] float32.
        """

    def turning(self, rotary: Rotary, positions: Tensor) -> Callable[[Tensor], Tensor]:
        """Turns heads [num_tokens, num_heads, head_size] by the angles of their tokens, perhaps in place.

        ``positions``: [num_tokens] int64. Rows of the heads may be strided over tokens.
        """

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(gate) * up: [num_tokens, width] of gates and what they let through, [num_tokens, 2 * width]."""


class TorchRows:
    """Plain torch, float32 inside."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype  # of the products

    def add_and_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See ``RowOps``."""
        if update is not None:
            residual += update
        return F.rms_norm(residual, weight.shape, weight, epsilon).to(self._dtype)

    def turning(self, rotary: Rotary, positions: Tensor) -> Callable[[Tensor], Tensor]:
        """See ``RowOps``."""
        cos, sin = rotary.at(positions)
        return lambda heads: rotate(heads.float(), cos, sin).to(self._dtype)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See ``RowOps``."""
        gate, up = gate_up.chunk(2, dim=-1)
        return (F.silu(gate.float()) * up).to(self._dtype)
