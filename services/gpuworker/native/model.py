"""A model of the library over packed weights."""

import ctypes
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpuworker.model.config import ModelConfig
from gpuworker.native.layout import Place
from gpuworker.native.library import StepLibrary
from gpuworker.native.packed_file import PackedWeights
from gpuworker.native.structs import LayerStruct, MatrixStruct, ModelParams
from gpuworker.weights.source import EMBEDDING, FINAL_NORM, LAYER_TENSORS, LM_HEAD, layer_tensor

HEAD_SIZE_MULTIPLE = 16

Table = npt.NDArray[np.float32]
_LAYER_FIELDS = ("input_norm", "query", "key", "value", "output", "mlp_norm", "gate", "up", "down")


class NativeModel:
    """Weights and sizes as a step takes them. ``handle`` is the library's; it lives as long as this object."""

    def __init__(
        self,
        config: ModelConfig,
        weights: PackedWeights,
        library: StepLibrary,
        *,
        precision: int,
        num_positions: int,
        num_threads: int,
    ) -> None:
        """Raises ``KernelInputError`` for a model that the library cannot compute."""
        self.config = config
        self._weights = weights
        self._library = library
        self._places = {place.name: place for place in weights.places}
        self._angles = rotary_tables(config, num_positions)
        self._layers = (LayerStruct * config.num_layers)(*map(self._layer, range(config.num_layers)))
        embedding = self._matrix(EMBEDDING)
        cos, sin = self._angles
        params = ModelParams(
            ctypes.addressof(self._layers),
            embedding,
            embedding if config.tie_word_embeddings else self._matrix(LM_HEAD),
            self._address(FINAL_NORM),
            cos.ctypes.data,
            sin.ctypes.data,
            num_positions,
            config.num_layers,
            config.num_heads,
            config.num_kv_heads,
            config.head_size,
            precision,
            num_threads,
            config.rms_norm_eps,
        )
        self.handle = ctypes.c_void_p()
        library.check(library.create_model(params, ctypes.byref(self.handle)))

    def __del__(self) -> None:
        """Frees what steps work in."""
        if getattr(self, "handle", None):
            self._library.destroy_model(self.handle)

    def _layer(self, index: int) -> LayerStruct:
        layer = LayerStruct()
        for field, name in zip(_LAYER_FIELDS, LAYER_TENSORS, strict=True):
            full_name = layer_tensor(index, name)
            find: Callable[[str], object] = self._address if field.endswith("norm") else self._matrix
            setattr(layer, field, find(full_name))
        return layer

    def _matrix(self, name: str) -> MatrixStruct:
        place = self._places[name]
        return MatrixStruct(self._address(name), place.num_outputs, place.num_inputs, place.weight_format)

    def _address(self, name: str) -> int:
        return int(self._weights.content.ctypes.data) + self._places[name].offset


def rotary_tables(config: ModelConfig, num_positions: int) -> tuple[Table, Table]:
    """Cosines and sines, each [num_positions, head_size / 2], of the angles of ``gpuworker.model.rotary``."""
    pairs = range(0, config.head_size, 2)
    frequencies = np.array([math.pow(config.rope_theta, -pair / config.head_size) for pair in pairs], dtype=np.float32)
    if config.rope_divisors:
        frequencies /= np.array(config.rope_divisors, dtype=np.float32)
    angles = np.outer(np.arange(num_positions, dtype=np.float32), frequencies)
    return np.cos(angles), np.sin(angles)


def formats_of(places: tuple[Place, ...]) -> str:
    """The formats of the matrices, for people and fingerprints: ``q4_1+q8_0``."""
    names = {place.weight_format.name.lower() for place in places if place.weight_format is not None}
    return "+".join(sorted(names))
