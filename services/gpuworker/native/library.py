"""The functions of ``octavo_product.h`` and ``octavo_step.h``."""

import ctypes
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpuworker.errors import KernelInputError
from gpuworker.library import KernelLibrary
from gpuworker.native.formats import WeightFormat
from gpuworker.native.structs import ModelParams, PackParams, StepParams


class StepLibrary(KernelLibrary):
    """What packs weights, makes models and computes steps, beside the kernels."""

    def __init__(self, path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``path``. Raises ``KernelsUnavailable``."""
        super().__init__(path)
        shape = (ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
        self._packed_bytes = self.declare("octavo_cpu_packed_bytes", shape, ctypes.c_int64)
        self._pack = self.declare("octavo_cpu_pack", (PackParams,))
        self.create_model = self.declare("octavo_cpu_create_model", (ModelParams, ctypes.c_void_p))
        self.destroy_model = self.declare("octavo_cpu_destroy_model", (ctypes.c_void_p,), None)
        self.step = self.declare("octavo_cpu_step", (ctypes.c_void_p, StepParams))

    def packed_bytes(self, weight_format: WeightFormat, num_outputs: int, num_inputs: int) -> int:
        """Bytes of a packed matrix. Raises ``KernelInputError`` for one that cannot be packed."""
        num_bytes = int(self._packed_bytes(weight_format, num_outputs, num_inputs))
        if num_bytes <= 0:
            raise KernelInputError(
                f"a matrix of {num_outputs} x {num_inputs} cannot be packed as {weight_format.name.lower()}: "
                f"its rows must be multiples of {weight_format.block_inputs}"
            )
        return num_bytes

    def pack(
        self,
        weight_format: WeightFormat,
        rows: npt.NDArray[np.uint8],
        num_inputs: int,
        packed: npt.NDArray[np.uint8],
    ) -> None:
        """Packs ``rows`` [num_outputs, row_bytes] into ``packed``, which starts at a multiple of 64."""
        contiguous = np.ascontiguousarray(rows)
        address, target = contiguous.ctypes.data, packed.ctypes.data
        self.check(self._pack(PackParams(address, target, len(rows), num_inputs, weight_format)))
