"""Single products with packed weights: what a step consists of, for tests and measurements."""

import ctypes
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuworker.native.formats import WeightFormat
from gpuworker.native.library import StepLibrary
from gpuworker.native.precision import Precision
from gpuworker.native.structs import MatrixStruct

_ALIGNMENT = 64


class ProductParams(ctypes.Structure):
    """``octavo_product_params``."""

    _fields_ = (
        ("weights", MatrixStruct),
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("precision", ctypes.c_int32),
    )


class UnpackParams(ctypes.Structure):
    """``octavo_unpack_params``."""

    _fields_ = (
        ("weights", MatrixStruct),
        ("outputs", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """One matrix, [num_outputs, num_inputs]."""

    packed: npt.NDArray[np.uint8]
    num_outputs: int
    num_inputs: int
    weight_format: WeightFormat

    def struct(self) -> MatrixStruct:
        """The same for the library, valid as long as this object lives."""
        return MatrixStruct(self.packed.ctypes.data, self.num_outputs, self.num_inputs, self.weight_format)


class Products:
    """``octavo_product.h`` over numpy arrays. Raises ``KernelInputError`` for what the library refuses."""

    def __init__(self, library: StepLibrary) -> None:
        """Of one loaded library."""
        self._library = library
        self._product = library.declare("octavo_cpu_product", (ProductParams,))
        self._unpack = library.declare("octavo_cpu_unpack", (UnpackParams,))

    def pack(self, weight_format: WeightFormat, rows: npt.NDArray[np.uint8], num_inputs: int) -> PackedWeights:
        """Packs ``rows``, [num_outputs, row_bytes]."""
        num_bytes = self._library.packed_bytes(weight_format, len(rows), num_inputs)
        memory = np.empty(num_bytes + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        packed = memory[start : start + num_bytes]
        self._library.pack(weight_format, rows, num_inputs, packed)
        return PackedWeights(packed, len(rows), num_inputs, weight_format)

    def multiply(
        self, weights: PackedWeights, x: npt.NDArray[np.float32], precision: Precision = Precision.FLOAT32
    ) -> npt.NDArray[np.float32]:
        """The product x W^T, [num_rows, num_inputs] to [num_rows, num_outputs]."""
        x = np.ascontiguousarray(x, np.float32)
        y = np.empty((len(x), weights.num_outputs), np.float32)
        self._library.check(
            self._product(ProductParams(weights.struct(), x.ctypes.data, y.ctypes.data, len(x), precision))
        )
        return y

    def unpack(self, weights: PackedWeights, outputs: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The weights of single outputs, [len(outputs), num_inputs]."""
        outputs = np.ascontiguousarray(outputs, np.int64)
        rows = np.empty((len(outputs), weights.num_inputs), np.float32)
        self._library.check(
            self._unpack(UnpackParams(weights.struct(), outputs.ctypes.data, rows.ctypes.data, len(outputs)))
        )
        return rows
