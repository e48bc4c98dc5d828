"""Kernels over paged KV memory: the contract (``ops``), its implementations, and ``load_ops`` to choose one."""

from typing import Literal

from gpuworker.errors import KernelError, KernelInputError, KernelsUnavailable
from gpuworker.kernels.ops import AttentionBatch, KernelOps, KVCache, KVCacheShape

__all__ = [
    "AttentionBatch",
    "KVCache",
    "KVCacheShape",
    "KernelError",
    "KernelInputError",
    "KernelOps",
    "KernelsUnavailable",
    "load_ops",
]


def load_ops(name: Literal["auto", "reference", "cpu", "cuda"]) -> KernelOps:
    """The implementation called ``name``; "auto" is "cuda" where it can be used, else "cpu".

    One that is missing is an error (``KernelsUnavailable``), never a fallback to another.
    """
    if name == "reference":
        from gpuworker.kernels.reference import ReferenceOps  # noqa: PLC0415

        return ReferenceOps()
    if name not in ("auto", "cpu", "cuda"):
        raise KernelsUnavailable(f"kernels is {name!r}, must be auto, reference, cpu or cuda")
    from gpuworker.kernels import cpu, cuda  # noqa: PLC0415

    if name == "cuda" or (name == "auto" and cuda.can_be_used()):
        return cuda.CudaOps()
    return cpu.CpuOps()
