"""Rotary position embedding, in the convention of Hugging Face: the two channels of a pair lie half a head apart."""

import torch
from torch import Tensor

from gpuworker.model.config import ModelConfig

_CPU = torch.device("cpu")


class Rotary:
    """Turns every pair of channels by an angle that grows with the position."""

    def __init__(self, config: ModelConfig, num_positions: int, device: torch.device = _CPU) -> None:
        pairs = torch.arange(0, config.head_size, 2, dtype=torch.float32)
        frequencies = 1.0 / (config.rope_theta ** (pairs / config.head_size))
        if config.rope_divisors:
            frequencies = frequencies / torch.tensor(config.rope_divisors, dtype=torch.float32)
        angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
        self.cosines = angles.cos().to(device)  # [num_positions, head_size / 2], as are the sines
        self.sines = angles.sin().to(device)
        self._cos = torch.cat((self.cosines, self.cosines), dim=-1)  # [num_positions, head_size]
        self._sin = torch.cat((-self.sines, self.sines), dim=-1)  # [num_positions, head_size]

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines of ``positions`` [num_tokens], each [num_tokens, 1, head_size]; for ``rotate``."""
        return self._cos[positions].unsqueeze(1), self._sin[positions].unsqueeze(1)


def rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """``heads`` [num_tokens, num_heads, head_size] turned by the angles of their tokens."""
    first, second = heads.chunk(2, dim=-1)
    return torch.addcmul(heads * cos, torch.cat((second, first), dim=-1), sin)
