"""In what formats matrices are kept, and from stored rows to these."""

from enum import IntEnum

import gguf
import numpy as np
import numpy.typing as npt

from gpuworker.errors import ModelUnreadable
from gpuworker.settings import Dtype, Weights
from gpuworker.weights.source import StoredRows

_ROWS_AT_A_TIME = 4096  # so that a quantized embedding is not in memory in float32 as a whole


class WeightFormat(IntEnum):
    """``octavo_weight_format``."""

    FLOAT32 = 0
    BFLOAT16 = 1
    Q8_0 = 2
    Q4_0 = 3
    Q4_1 = 4
    Q4_K = 5
    Q6_K = 6

    @property
    def ggml_type(self) -> gguf.GGMLQuantizationType:
        """The type of a file's tensors that are kept so."""
        return gguf.GGMLQuantizationType[_GGML_NAMES.get(self, self.name)]

    @property
    def is_quantized(self) -> bool:
        """Whether blocks of inputs share a scale."""
        return self.block_inputs > 1

    @property
    def block_inputs(self) -> int:
        """Elements that share a block; a row is a multiple of it."""
        block_inputs: int = gguf.GGML_QUANT_SIZES[self.ggml_type][0]
        return block_inputs


_GGML_NAMES = {WeightFormat.FLOAT32: "F32", WeightFormat.BFLOAT16: "BF16"}
_SAME = {weight_format.ggml_type.name: weight_format for weight_format in WeightFormat}
_OF_DTYPE = {Dtype.FLOAT32: WeightFormat.FLOAT32, Dtype.BFLOAT16: WeightFormat.BFLOAT16}
_NOT_QUANTIZED = ("F32", "F16", "BF16")


def choose_weights(asked: Weights, kinds: set[str], dtype: Dtype) -> Weights:
    """What ``auto`` stands for, given the kinds of the model's matrices."""
    if asked is not Weights.AUTO:
        return asked
    if kinds - set(_NOT_QUANTIZED):
        return Weights.PACKED
    return Weights.FLOAT32 if dtype is Dtype.FLOAT32 else Weights.BFLOAT16


def format_of(kind: str, weights: Weights, dtype: Dtype) -> WeightFormat:
    """The format for a matrix that its file stores as ``kind``.

    Packed, a kind that has no format of its own (F16, Q5_1 …) is kept in that of the ``dtype``.
    """
    if weights is Weights.PACKED:
        return _SAME.get(kind, _OF_DTYPE[dtype])
    return WeightFormat[weights.name]


def to_format(stored: StoredRows, weight_format: WeightFormat) -> npt.NDArray[np.uint8]:
    """The rows in ``weight_format``, [num_rows, row_bytes]; as they are where it is theirs."""
    if _SAME.get(stored.kind) is weight_format:
        return stored.rows
    if stored.num_inputs % weight_format.block_inputs:
        raise ModelUnreadable(
            f"rows of {stored.num_inputs} weights cannot be kept as {weight_format.name.lower()}, "
            f"whose blocks are {weight_format.block_inputs}"
        )
    starts = range(0, len(stored.rows), _ROWS_AT_A_TIME)
    pieces = [_convert(stored.kind, stored.rows[start : start + _ROWS_AT_A_TIME], weight_format) for start in starts]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def to_float32(kind: str, rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Rows [num_rows, row_bytes] of ``kind`` as float32, [num_rows, num_inputs]."""
    if kind == "F32":
        return np.ascontiguousarray(rows).view(np.float32)
    if kind == "F16":
        return np.ascontiguousarray(rows).view(np.float16).astype(np.float32)
    if kind == "BF16":
        return (np.ascontiguousarray(rows).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    try:
        values: npt.NDArray[np.float32] = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    except (KeyError, NotImplementedError) as error:
        raise ModelUnreadable(f"weights of type {kind} cannot be dequantized") from error
    return values


def _convert(kind: str, rows: npt.NDArray[np.uint8], weight_format: WeightFormat) -> npt.NDArray[np.uint8]:
    values = to_float32(kind, rows)
    if weight_format is WeightFormat.FLOAT32:
        return values.view(np.uint8)
    if weight_format is WeightFormat.BFLOAT16:
        return _to_bfloat16(values).view(np.uint8)
    quantized: npt.NDArray[np.uint8] = gguf.quantize(values, weight_format.ggml_type)
    return quantized


def _to_bfloat16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Rounded to nearest, ties to even; weights are finite."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
