"""What computes steps, as the assembly and the engine see it."""

from collections.abc import Callable
from dataclasses import dataclass

from gpuworker.engine import Executor


@dataclass(frozen=True, slots=True)
class Backend:
    """A loaded model and its kernels, before memory is divided among blocks."""

    dtype: str  # of the KV
    kernels: str  # for people
    arithmetic: tuple[str, ...]  # what decides the content of KV, beside weights and configuration
    content_digest: bytes  # SHA-256 over the model's files
    block_bytes: int  # KV bytes of one block over all layers
    make_executor: Callable[[int, int], Executor]  # with pools of so many device and host blocks
    device_kv_bytes: int | None = None  # of a device's own memory, for KV; none: KV lies in the host's
    phase_names: tuple[str, ...] = ()  # of a step's computation, where they are timed
