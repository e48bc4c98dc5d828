"""Llama models in GGUF files, as ``WeightSource``."""

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from gpuworker.errors import ModelUnreadable
from gpuworker.model.config import ModelConfig
from gpuworker.weights.gguf_file import GGUFFile
from gpuworker.weights.source import (
    EMBEDDING,
    FINAL_NORM,
    LAYER_TENSORS,
    LM_HEAD,
    StoredRows,
    check_tensors,
    layer_tensor,
)

if TYPE_CHECKING:
    from torch import Tensor

Element = TypeVar("Element", bound=np.generic)

_ROPE_DIVISORS = "rope_freqs.weight"
_LAYER_NAMES = dict(
    zip(
        (
            "attn_norm.weight",
            "attn_q.weight",
            "attn_k.weight",
            "attn_v.weight",
            "attn_output.weight",
            "ffn_norm.weight",
            "ffn_gate.weight",
            "ffn_up.weight",
            "ffn_down.weight",
        ),
        LAYER_TENSORS,
        strict=True,
    )
)
_NAMES = {"token_embd.weight": EMBEDDING, "output_norm.weight": FINAL_NORM, "output.weight": LM_HEAD}


class GGUFSource:
    """A GGUF file of the architecture ``llama``. Raises ``ModelUnreadable`` on any other."""

    def __init__(self, path: Path) -> None:
        self._file = GGUFFile(path)
        self._fields = _Fields(self._file)
        self._refuse_other_kinds()
        self._config = self._read_config()
        self._stored_names = {_model_name(name): name for name in self._file.tensors if name != _ROPE_DIVISORS}
        shapes = {ours: self._file.tensors[stored].shape for ours, stored in self._stored_names.items()}
        check_tensors(path, self._config, shapes)

    @property
    def config(self) -> ModelConfig:
        """See ``WeightSource``."""
        return self._config

    @property
    def name(self) -> str:
        """``general.name``, or the file's name."""
        return str(self._file.fields.get("general.name", self.path.stem))

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def tensor(self, name: str) -> "Tensor":
        """See ``WeightSource``. Always float32."""
        import torch  # noqa: PLC0415 (see WeightSource)

        values = self._file.dequantize(self._stored_name(name))
        return torch.from_numpy(np.require(self._in_our_order(name, values), requirements="W"))

    def stored(self, name: str) -> StoredRows:
        """See ``WeightSource``."""
        entry = self._file.tensors[self._stored_name(name)]
        rows = self._in_our_order(name, self._file.rows(self._stored_name(name)))
        return StoredRows(entry.quantization.name, rows, entry.shape[-1])

    def files(self) -> tuple[Path, ...]:
        """See ``WeightSource``."""
        return (self.path,)

    def _stored_name(self, name: str) -> str:
        if name not in self._stored_names:
            raise ModelUnreadable(f"{self.path}: tensor {name} is missing")
        return self._stored_names[name]

    def _in_our_order(self, name: str, rows: npt.NDArray[Element]) -> npt.NDArray[Element]:
        if name.endswith("self_attn.q_proj.weight"):
            return split_rotary_pairs(rows, self._config.num_heads)
        if name.endswith("self_attn.k_proj.weight"):
            return split_rotary_pairs(rows, self._config.num_kv_heads)
        return rows

    def _refuse_other_kinds(self) -> None:
        fields = self._fields
        architecture = fields.text("general.architecture")
        if architecture != "llama":
            fields.fail("general.architecture", architecture, "supported: llama")
        for key in ("split.count", "llama.expert_count"):
            if fields.number(key, 0) > 1:
                fields.fail(key, fields.number(key, 0), "neither split files nor mixtures of experts are supported")

    def _read_config(self) -> ModelConfig:
        fields, tensors = self._fields, self._file.tensors
        hidden_size, num_heads = fields.count("llama.embedding_length"), fields.count("llama.attention.head_count")
        head_size = fields.count("llama.attention.key_length", hidden_size // num_heads)
        for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
            if fields.count(key, head_size) != head_size:
                fields.fail(key, fields.count(key), f"it must equal the head size, {head_size}")
        if "token_embd.weight" not in tensors:
            raise ModelUnreadable(f"{self.path}: tensor token_embd.weight is missing")
        try:
            return ModelConfig(
                vocab_size=tensors["token_embd.weight"].shape[0],
                hidden_size=hidden_size,
                intermediate_size=fields.count("llama.feed_forward_length"),
                num_layers=fields.count("llama.block_count"),
                num_heads=num_heads,
                num_kv_heads=fields.count("llama.attention.head_count_kv", num_heads),
                head_size=head_size,
                max_position=fields.count("llama.context_length"),
                rms_norm_eps=_shortest_float32(fields.number("llama.attention.layer_norm_rms_epsilon")),
                rope_theta=_shortest_float32(fields.number("llama.rope.freq_base", 10000.0)),
                rope_divisors=self._rope_divisors(head_size),
                tie_word_embeddings="output.weight" not in tensors,
            )
        except ValueError as error:
            raise ModelUnreadable(f"{self.path}: {error}") from error

    def _rope_divisors(self, head_size: int) -> tuple[float, ...]:
        """Converters write the scaling of Llama 3 as a tensor, and a linear one as a field."""
        if _ROPE_DIVISORS in self._file.tensors:
            return tuple(self._file.dequantize(_ROPE_DIVISORS).tolist())
        kind = self._fields.text("llama.rope.scaling.type", "none")
        if kind == "linear":
            return (self._fields.number("llama.rope.scaling.factor"),) * (head_size // 2)
        if kind != "none":
            self._fields.fail("llama.rope.scaling.type", kind, "supported: none, linear")
        return ()


class _Fields:
    """Header fields with the checks that make a missing or strange one a clear error."""

    def __init__(self, file: GGUFFile) -> None:
        self._file = file

    def text(self, key: str, default: str | None = None) -> str:
        value = self._file.fields.get(key, default)
        if not isinstance(value, str):
            self.fail(key, value, "a text was expected")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._file.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, value, "a number was expected")
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.number(key, default)
        if not isinstance(value, int) or value < 1:
            self.fail(key, value, "a whole number of at least 1 was expected")
        return value

    def fail(self, key: str, value: object, expectation: str) -> NoReturn:
        what = "is missing" if value is None else f"is {value!r}"
        raise ModelUnreadable(f"{self._file.path}: field {key} {what}; {expectation}")


def split_rotary_pairs(rows: npt.NDArray[Element], num_heads: int) -> npt.NDArray[Element]:
    """Undoes the order in which converters store the rows of q and k projections.

    A rotation turns pairs of channels. GGUF keeps the two of a pair side by side (0, 1), (2, 3), …; Hugging Face
    and this engine keep them half a head apart (0, half), (1, half + 1), …

    ``rows``: [num_heads * head_size, anything], and so is the result.
    """
    num_rows, width = rows.shape
    pairs = rows.reshape(num_heads, num_rows // num_heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(num_rows, width)


def _model_name(stored_name: str) -> str:
    """The Hugging Face name, or the stored one where there is none."""
    if stored_name in _NAMES:
        return _NAMES[stored_name]
    prefix, _, rest = stored_name.partition(".")
    layer_index, _, layer_name = rest.partition(".")
    if prefix == "blk" and layer_index.isdecimal() and layer_name in _LAYER_NAMES:
        return layer_tensor(int(layer_index), _LAYER_NAMES[layer_name])
    return stored_name


def _shortest_float32(value: float) -> float:
    """The shortest decimal that gives the same float32: 1e-05, where the file's float32 reads 9.999999747378752e-06."""
    return float(str(np.float32(value)))
