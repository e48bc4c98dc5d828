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


def load_ops(name: Literal["auto", "reference", "cpu"]) -> KernelOps:
    """The implementation called ``name``; "auto" is "cpu".

    One that is missing is an error (``KernelsUnavailable``), never a fallback to another.
    """
    if name == "reference":
        from gpuworker.kernels.reference import ReferenceOps  # noqa: PLC0415

        return ReferenceOps()
    if name in ("auto", "cpu"):
        from gpuworker.kernels.cpu import CpuOps  # noqa: PLC0415

        return CpuOps()
    raise KernelsUnavailable(f"kernels is {name!r}, must be auto, reference or cpu")
