"""The model's row operations by the CUDA kernels, one launch each."""

from collections.abc import Callable

import torch
from torch import Tensor

from gpuworker.kernels.cuda_device import Device
from gpuworker.kernels.cuda_library import CudaLibrary
from gpuworker.kernels.structs import DTYPE_CODES
from gpuworker.model.rotary import Rotary
from gpuworker.row_structs import ActivationParams, NormParams, RotaryParams


class CudaRows:
    """See ``RowOps``. Tensors lie on the device; widths are multiples of 8, head sizes of 16."""

    def __init__(self, library: CudaLibrary, device: Device, dtype: torch.dtype) -> None:
        self._library = library
        self._device = device
        self._dtype = dtype  # of the products

    def add_and_norm(self, residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float) -> Tensor:
        """See ``RowOps``."""
        output = torch.empty(residual.shape, dtype=self._dtype, device=residual.device)
        params = NormParams(
            None if update is None else update.data_ptr(),
            residual.data_ptr(),
            weight.data_ptr(),
            None,
            output.data_ptr(),
            *residual.shape,
            DTYPE_CODES[self._dtype],
            epsilon,
        )
        self._library.check(self._library.rms_norm(params, self._device.compute_stream))
        return output

    def turning(self, rotary: Rotary, positions: Tensor) -> Callable[[Tensor], Tensor]:
        """See ``RowOps``. In place."""
        cosines, sines = rotary.cosines, rotary.sines

        def turn(heads: Tensor) -> Tensor:
            num_tokens, num_heads, head_size = heads.shape
            params = RotaryParams(
                heads.data_ptr(),
                cosines.data_ptr(),
                sines.data_ptr(),
                positions.data_ptr(),
                num_tokens,
                heads.stride(0),
                num_heads,
                head_size,
                DTYPE_CODES[heads.dtype],
            )
            self._library.check(self._library.rotary(params, self._device.compute_stream))
            return heads

        return turn

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See ``RowOps``."""
        num_tokens, width = gate_up.shape[0], gate_up.shape[1] // 2
        output = torch.empty(num_tokens, width, dtype=gate_up.dtype, device=gate_up.device)
        params = ActivationParams(gate_up.data_ptr(), output.data_ptr(), num_tokens, width, DTYPE_CODES[gate_up.dtype])
        self._library.check(self._library.silu_mul(params, self._device.compute_stream))
        return output
