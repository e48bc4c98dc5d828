"""The weights of a model as every file format gives them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from gpuworker.errors import ModelUnreadable
from gpuworker.model.config import ModelConfig

if TYPE_CHECKING:  # importing torch takes seconds, and not all who read weights need it
    from torch import Tensor

EMBEDDING = "model.embed_tokens.weight"
FINAL_NORM = "model.norm.weight"
LM_HEAD = "lm_head.weight"
LAYER_TENSORS = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A tensor as its file stores it, quantized or not, in the Hugging Face layout.

    ``kind`` is GGML's name of the element or block type, such as F16 or Q4_1; a vector is one row.
    """

    kind: str
    rows: npt.NDArray[np.uint8]  # [num_rows, row_bytes]
    num_inputs: int  # elements of a row


class WeightSource(Protocol):
    """A model in a file or folder. Tensors go by their Hugging Face names and in the Hugging Face layout."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def name(self) -> str:
        """What the model calls itself, or the file's name."""

    @property
    def path(self) -> Path: ...

    def tensor(self, name: str) -> "Tensor":
        """The tensor of that name, in the shape that ``tensor_shapes`` gives; float32, float16 or bfloat16.

        Raises ``ModelUnreadable`` where it is missing, damaged or of a type that is not supported.
        """

    def stored(self, name: str) -> StoredRows:
        """The tensor of that name as it is stored. Raises ``ModelUnreadable`` as ``tensor`` does."""

    def files(self) -> tuple[Path, ...]:
        """Every file whose content decides a tensor or the configuration, in a fixed order."""


def layer_tensor(layer_index: int, name: str) -> str:
    """The full name of one of ``LAYER_TENSORS``."""
    return f"model.layers.{layer_index}.{name}"


def tensor_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every tensor that a model of this configuration has."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    query_size = config.num_heads * config.head_size
    kv_size = config.num_kv_heads * config.head_size
    layer_shapes: tuple[tuple[int, ...], ...] = (
        (hidden,),
        (query_size, hidden),
        (kv_size, hidden),
        (kv_size, hidden),
        (hidden, query_size),
        (hidden,),
        (intermediate, hidden),
        (intermediate, hidden),
        (hidden, intermediate),
    )
    yield EMBEDDING, (config.vocab_size, hidden)
    yield FINAL_NORM, (hidden,)
    if not config.tie_word_embeddings:
        yield LM_HEAD, (config.vocab_size, hidden)
    for layer_index in range(config.num_layers):
        for name, shape in zip(LAYER_TENSORS, layer_shapes, strict=True):
            yield layer_tensor(layer_index, name), shape


def check_tensors(path: Path, config: ModelConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raises ``ModelUnreadable`` unless ``shapes`` is what the configuration asks for, no more and no less.

    A tensor that we do not know, say a bias, would change the answer; so it is refused and never skipped.
    """
    expected = dict(tensor_shapes(config))
    for name, shape in expected.items():
        if name not in shapes:
            raise ModelUnreadable(f"{path}: tensor {name} is missing")
        if shapes[name] != shape:
            raise ModelUnreadable(f"{path}: tensor {name} has shape {shapes[name]}, but {shape} was expected")
    for name in shapes:
        if name not in expected and not _is_harmless(name, config):
            raise ModelUnreadable(f"{path}: tensor {name} belongs to no architecture that is supported (llama)")


def _is_harmless(name: str, config: ModelConfig) -> bool:
    if name == LM_HEAD:
        return config.tie_word_embeddings
    return re.fullmatch(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq", name) is not None
