"""What the CUDA kernels and the executor over them need of a device, and the real one."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from gpuworker.errors import KernelError, KernelsUnavailable
from gpuworker.kernels.ops import KVCache, KVCacheShape

LEAST_CAPABILITY = (8, 0)
HOW_TO_GET_TORCH = "install the build of torch for CUDA, such as `pip install torch` from PyPI on Linux"


class Device(Protocol):
    """One device as seen by the thread that uses it. Tests hand in the CPU's own memory instead."""

    @property
    def torch_device(self) -> torch.device:
        """Where tensors lie."""

    @property
    def num_multiprocessors(self) -> int:
        """Thread blocks that can surely run at once."""

    @property
    def compute_stream(self) -> int | None:
        """``cudaStream_t`` to which torch hands its work now; None is the default stream."""

    @property
    def copy_stream(self) -> int | None:
        """``cudaStream_t`` for copies between device and host."""

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """A pool of zeros in device memory. Raises ``KernelError`` with the bytes if there is not so much."""

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """A pool of zeros in pinned host memory. Raises ``KernelError`` with the bytes."""

    def pinned(self, num_bytes: int) -> Tensor:
        """Host memory from which and to which copies need no detour: [num_bytes] uint8."""

    def workspace(self, num_bytes: int) -> Tensor:
        """Device memory with anything in it, for what is handed to the compute stream next."""

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Does ``work`` and records it with the addresses that it used; it must not wait for the device.

        The result does it again, on what the addresses hold then.
        """

    def free_bytes(self) -> int:
        """Device memory that can still be taken."""

    def synchronize(self) -> None:
        """Waits for all work. What went wrong in it since the last call is raised here."""


class CudaDevice:
    """torch's current CUDA device."""

    def __init__(self) -> None:
        """Raises ``KernelsUnavailable`` where there is none that the kernels run on."""
        missing = what_is_missing()
        if missing:
            raise KernelsUnavailable(missing)
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._num_multiprocessors = int(torch.cuda.get_device_properties(self._device).multi_processor_count)
        self._copies = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        # No graph can be captured on the default stream.
        self._recording = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        self._graph_pool = torch.cuda.graph_pool_handle()
        self._graphs: list[torch.cuda.CUDAGraph] = []  # the pool lives as long as one of them, and must not end before

    @property
    def torch_device(self) -> torch.device:
        """See ``Device``."""
        return self._device

    @property
    def num_multiprocessors(self) -> int:
        """See ``Device``."""
        return self._num_multiprocessors

    @property
    def compute_stream(self) -> int | None:
        """See ``Device``."""
        return int(torch.cuda.current_stream(self._device).cuda_stream)

    @property
    def copy_stream(self) -> int | None:
        """See ``Device``."""
        return int(self._copies.cuda_stream)

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``Device``."""
        try:
            return KVCache(shape, torch.zeros(shape.dimensions, dtype=dtype, device=self._device))
        except torch.OutOfMemoryError as error:
            raise _out_of_memory("device", shape, dtype) from error

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``Device``."""
        if shape.num_blocks == 0:
            return KVCache(shape, torch.zeros(shape.dimensions, dtype=dtype, device="cpu"))
        try:
            return KVCache(shape, torch.zeros(shape.dimensions, dtype=dtype, device="cpu", pin_memory=True))
        except RuntimeError as error:  # the driver's, without a type of its own
            raise _out_of_memory("pinned host", shape, dtype) from error

    def pinned(self, num_bytes: int) -> Tensor:
        """See ``Device``."""
        return torch.empty(num_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)

    def workspace(self, num_bytes: int) -> Tensor:
        """See ``Device``."""
        return torch.empty(num_bytes, dtype=torch.uint8, device=self._device)

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """See ``Device``. Recordings share their temporary memory, so they must be replayed one after the other."""
        self._recording.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._recording):
            work()  # loads kernels and sets libraries up, which a capture cannot
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._graph_pool, stream=self._recording):
            work()
        self._graphs.append(graph)
        return graph.replay

    def free_bytes(self) -> int:
        """See ``Device``."""
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self._device)
        return free

    def synchronize(self) -> None:
        """See ``Device``."""
        torch.cuda.synchronize(self._device)


def what_is_missing() -> str:
    """What keeps this process from using a CUDA device and how to get it; nothing where there is one."""
    if torch.version.cuda is None:
        return f"the cuda kernels need a torch that knows CUDA, this one is {torch.__version__}: {HOW_TO_GET_TORCH}"
    if not torch.cuda.is_available():
        return (
            "the cuda kernels need a CUDA device, but torch finds none: nvidia-smi lists devices and the driver, "
            "CUDA_VISIBLE_DEVICES may hide them"
        )
    capability = torch.cuda.get_device_capability()
    if capability < LEAST_CAPABILITY:
        major, minor = capability
        return f"the cuda kernels need compute capability 8.0, {torch.cuda.get_device_name()} has {major}.{minor}"
    return ""


def _out_of_memory(kind: str, shape: KVCacheShape, dtype: torch.dtype) -> KernelError:
    num_bytes = shape.num_blocks * shape.block_bytes(dtype)
    return KernelError(f"cannot allocate {num_bytes} bytes of {kind} memory for {shape.num_blocks} KV blocks")
