"""``KernelOps`` over the C++ kernels for CPUs (``csrc/cpu``)."""

from pathlib import Path

import torch

from gpuworker.errors import KernelInputError
from gpuworker.kernels.checks import check_pairs, check_pools, check_query, check_write
from gpuworker.kernels.memory import allocate_pool
from gpuworker.kernels.ops import AttentionBatch, KVCache, KVCacheShape
from gpuworker.kernels.structs import CallStructs
from gpuworker.library import KernelLibrary


class CpuOps:
    """C++ kernels with the best instruction set of this machine. Not for use by several threads at once."""

    def __init__(self, library_path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``library_path``. Raises ``KernelsUnavailable``."""
        self._library = KernelLibrary(library_path)
        self._structs = CallStructs()

    @property
    def name(self) -> str:
        """Which implementation this is, for people."""
        return f"cpu[{self._library.isa}]"

    def select_isa(self, isa: str) -> None:
        """Uses another instruction set in this process from now on ("auto": the best one); for tests."""
        self._library.select_isa(isa)

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``."""
        if dtype == torch.float16:
            raise KernelInputError("dtype is torch.float16, but the cpu kernels have torch.float32 and torch.bfloat16")
        return allocate_pool(shape, dtype)

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``."""
        return self.allocate(shape, dtype)

    def write_kv(
        self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor
    ) -> None:
        """See ``KernelOps``."""
        check_write(key, value, cache, layer, slot_mapping)
        self._library.check(self._library.write_kv(self._structs.write_kv(key, value, cache, layer, slot_mapping)))

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        """See ``KernelOps``."""
        check_query(query, cache, layer)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        params = self._structs.paged_attention(query, output, cache, layer, batch, scale)
        self._library.check(self._library.paged_attention(params))
        return output

    def copy_blocks(self, cache: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        self._library.check(self._library.copy_blocks(self._structs.copy_blocks(cache, pairs)))

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        check_pools(source, destination)
        self._library.check(self._library.swap_blocks(self._structs.swap_blocks(source, destination, pairs)))
