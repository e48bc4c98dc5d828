"""Memory for a KV pool on the host."""

import torch

from gpuworker.huge_pages import map_huge_pages
from gpuworker.kernels.ops import KVCache, KVCacheShape, require_supported


def allocate_pool(shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
    """A pool of zeros, as ``map_huge_pages`` gives it."""
    require_supported(dtype)
    num_bytes = shape.num_blocks * shape.block_bytes(dtype)
    if num_bytes == 0:
        return KVCache(shape, torch.zeros(shape.dimensions, dtype=dtype))
    return KVCache(shape, torch.frombuffer(map_huge_pages(num_bytes), dtype=dtype).view(shape.dimensions))
