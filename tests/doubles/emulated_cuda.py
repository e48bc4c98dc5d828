"""The CPU's own memory as a device, on which ``CudaOps`` runs the CUDA kernels in emulation (``csrc/emulation``)."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from gpuworker.kernels import KernelInputError, KVCache, KVCacheShape
from gpuworker.kernels.cuda import CudaOps, Splitting, check_shape
from gpuworker.kernels.memory import allocate_pool

LIBRARY = Path(__file__).parents[2] / "build" / "emulated" / "tests" / "liboctavo_cuda_emulated.so"  # make emulated


class EmulatedDevice:
    """Work is done where it is handed over, so there is nothing to wait for."""

    torch_device = torch.device("cpu")
    num_multiprocessors = 4
    compute_stream = None
    copy_stream = None

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        return allocate_pool(shape, dtype)

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        return allocate_pool(shape, dtype)

    def pinned(self, num_bytes: int) -> Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def workspace(self, num_bytes: int) -> Tensor:
        """NaN, so that what is read before it is written shows."""
        return torch.full((-(-num_bytes // 4),), torch.nan)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        work()
        return work

    def free_bytes(self) -> int:
        return 1 << 30

    def synchronize(self) -> None:
        pass


def emulated_ops(splitting: Splitting = Splitting.AUTO) -> CudaOps:
    """The emulation checks what lies in "device" memory, which costs nothing there."""
    return CudaOps(EmulatedDevice(), LIBRARY, splitting=splitting, reads_ids=True)


def supports(shape: KVCacheShape) -> bool:
    """Whether there are CUDA kernels for this shape."""
    try:
        check_shape(shape)
    except KernelInputError:
        return False
    return True
