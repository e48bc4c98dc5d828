"""Llama models in Hugging Face folders, sharded or not, as ``WeightSource``."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open

from gpuworker.errors import ModelUnreadable
from gpuworker.model.config import ModelConfig
from gpuworker.weights.source import StoredRows, check_tensors

if TYPE_CHECKING:
    from torch import Tensor

_CONFIG = "config.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_DTYPES = ("F32", "F16", "BF16")


class SafetensorsSource:
    """A folder with ``config.json`` and safetensors files. Raises ``ModelUnreadable`` on what it cannot read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._config = read_config(path / _CONFIG)
        self._files = _weight_files(path)
        self._homes: dict[str, Path] = {}  # tensor name to the file that holds it
        shapes: dict[str, tuple[int, ...]] = {}
        for file in self._files:
            try:
                opened: Any = safe_open(file, framework="numpy")
            except (OSError, SafetensorError) as error:
                raise ModelUnreadable(f"{file}: cannot be read: {error}") from error
            for name in opened.keys():  # noqa: SIM118 (it is no mapping)
                self._homes[name] = file
                shapes[name] = tuple(opened.get_slice(name).get_shape())
        check_tensors(path, self._config, shapes)

    @property
    def config(self) -> ModelConfig:
        """See ``WeightSource``."""
        return self._config

    @property
    def name(self) -> str:
        """The folder's name."""
        return self._path.resolve().name

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    def tensor(self, name: str) -> "Tensor":
        """See ``WeightSource``. In the type of the file."""
        home = self._home(name)
        opened: Any = safe_open(home, framework="pt")
        self._require_float(name, opened.get_slice(name).get_dtype())
        values: Tensor = opened.get_tensor(name)
        return values

    def stored(self, name: str) -> StoredRows:
        """See ``WeightSource``."""
        home = self._home(name)
        with home.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            entry = json.loads(file.read(header_bytes))[name]
        self._require_float(name, entry["dtype"])
        start, end = entry["data_offsets"]
        shape = entry["shape"]
        content = np.memmap(home, np.uint8, "r", offset=8 + header_bytes + start, shape=(end - start,))
        return StoredRows(entry["dtype"], content.reshape(shape[0] if len(shape) > 1 else 1, -1), shape[-1])

    def files(self) -> tuple[Path, ...]:
        """See ``WeightSource``."""
        return (self._path / _CONFIG, *self._files)

    def _home(self, name: str) -> Path:
        if name not in self._homes:
            raise ModelUnreadable(f"{self._path}: tensor {name} is missing")
        return self._homes[name]

    def _require_float(self, name: str, kind: str) -> None:
        if kind not in _DTYPES:
            raise ModelUnreadable(f"{self._path}: tensor {name} is {kind}; supported: {', '.join(_DTYPES)}")


def read_config(path: Path) -> ModelConfig:
    """The configuration in a ``config.json``, as written by transformers 4 or 5."""
    return _Config(path).model_config()


class _Config:
    """A ``config.json`` whose every field is checked when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values = _read_json(path)

    def model_config(self) -> ModelConfig:
        self._require("model_type", "llama")
        self._require("hidden_act", "silu", default="silu")
        for key in ("attention_bias", "mlp_bias"):
            self._require(key, False, default=False)
        hidden_size, num_heads = self._count("hidden_size"), self._count("num_attention_heads")
        head_size = self._count("head_dim", hidden_size // num_heads)
        rope = self._rope()
        rope_theta = self._number(rope, "rope_theta", 10000.0)
        try:
            return ModelConfig(
                vocab_size=self._count("vocab_size"),
                hidden_size=hidden_size,
                intermediate_size=self._count("intermediate_size"),
                num_layers=self._count("num_hidden_layers"),
                num_heads=num_heads,
                num_kv_heads=self._count("num_key_value_heads", num_heads),
                head_size=head_size,
                max_position=self._count("max_position_embeddings", 2048),
                rms_norm_eps=self._number(self._values, "rms_norm_eps", 1e-6),
                rope_theta=rope_theta,
                rope_divisors=self._rope_divisors(rope, rope_theta, head_size),
                tie_word_embeddings=bool(self._values.get("tie_word_embeddings", False)),
            )
        except ValueError as error:
            raise ModelUnreadable(f"{self._path}: {error}") from error

    def _rope(self) -> Mapping[str, Any]:
        """Version 5 keeps everything in ``rope_parameters``; version 4 had ``rope_theta`` and ``rope_scaling``."""
        old = {"rope_theta": self._values.get("rope_theta", 10000.0), **(self._values.get("rope_scaling") or {})}
        return {**old, **(self._values.get("rope_parameters") or {})}

    def _rope_divisors(self, rope: Mapping[str, Any], rope_theta: float, head_size: int) -> tuple[float, ...]:
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind == "default":
            return ()
        factor = self._number(rope, "factor")
        if kind == "linear":
            return (factor,) * (head_size // 2)
        if kind != "llama3":
            self._fail("rope_type", kind, "supported: default, linear, llama3")
        return llama3_divisors(
            [rope_theta ** (-2 * pair / head_size) for pair in range(head_size // 2)],
            factor=factor,
            low_frequency_factor=self._number(rope, "low_freq_factor"),
            high_frequency_factor=self._number(rope, "high_freq_factor"),
            original_max_position=self._number(rope, "original_max_position_embeddings"),
        )

    def _count(self, key: str, default: int | None = None) -> int:
        value = self._values.get(key)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self._fail(key, value, "a whole number of at least 1 was expected")
        return value

    def _number(self, values: Mapping[str, Any], key: str, default: float | None = None) -> float:
        value = values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self._fail(key, value, "a positive number was expected")
        return float(value)

    def _require(self, key: str, supported: object, default: object = None) -> None:
        value = self._values.get(key, default)
        if value != supported:
            self._fail(key, value, f"supported: {supported!r}")

    def _fail(self, key: str, value: object, expectation: str) -> NoReturn:
        what = "is missing" if value is None else f"is {value!r}"
        raise ModelUnreadable(f"{self._path}: field {key} {what}; {expectation}")


def llama3_divisors(
    frequencies: list[float],
    *,
    factor: float,
    low_frequency_factor: float,
    high_frequency_factor: float,
    original_max_position: float,
) -> tuple[float, ...]:
    """By how much Llama 3 slows each rotary frequency: long waves by ``factor``, short ones not, smooth in between."""

    def divisor(frequency: float) -> float:
        turns = original_max_position * frequency / (2 * math.pi)
        smooth = (turns - low_frequency_factor) / (high_frequency_factor - low_frequency_factor)
        smooth = min(max(smooth, 0.0), 1.0)
        return 1.0 / ((1.0 - smooth) / factor + smooth)

    return tuple(map(divisor, frequencies))


def _weight_files(path: Path) -> tuple[Path, ...]:
    if (path / _INDEX).exists():
        shards = _read_json(path / _INDEX).get("weight_map")
        if not isinstance(shards, dict):
            raise ModelUnreadable(f"{path / _INDEX}: field weight_map is {shards!r}; an object was expected")
        return tuple(path / shard for shard in sorted(set(shards.values())))
    if (path / _SINGLE).exists():
        return (path / _SINGLE,)
    raise ModelUnreadable(f"{path}: neither {_SINGLE} nor {_INDEX} is there")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelUnreadable(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise ModelUnreadable(f"{path}: the file holds {type(values).__name__}; an object was expected")
    return values
