"""What decides a model's arithmetic besides its weights."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder of the Llama family. Values are checked when it is made.

    ``rope_divisors`` divides the rotary frequencies, one entry per pair of channels; it is empty where the
    frequencies are used as they are. Every kind of rotary scaling that Octavo supports comes down to this.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    max_position: int  # tokens
    rms_norm_eps: float
    rope_theta: float
    rope_divisors: tuple[float, ...] = ()  # [head_size / 2] or empty
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "max_position"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_kv_heads is {self.num_kv_heads}, but must divide num_heads, {self.num_heads}")
        if self.head_size < 2 or self.head_size % 2:
            raise ValueError(f"head_size is {self.head_size}, but must be even and at least 2")
        for name in ("rms_norm_eps", "rope_theta"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} is {value}, but must be a positive number")
        if self.rope_divisors and len(self.rope_divisors) != self.head_size // 2:
            raise ValueError(
                f"rope_divisors has {len(self.rope_divisors)} entries, but head_size / 2 is {self.head_size // 2}"
            )
