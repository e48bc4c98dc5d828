"""KV memory of the native step: a pool of blocks on the host."""

from dataclasses import dataclass

import numpy as np

from gpuworker.huge_pages import map_huge_pages
from gpuworker.library import CacheStruct
from gpuworker.model.config import ModelConfig
from gpuworker.settings import Dtype

DTYPE_CODES = {Dtype.FLOAT32: 0, Dtype.BFLOAT16: 1}
_ELEMENT_BYTES = {Dtype.FLOAT32: 4, Dtype.BFLOAT16: 2}


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """[num_blocks][num_layers][K|V][num_kv_heads][block_size][head_size]; see ``kernels.ops``."""

    memory: memoryview
    struct: CacheStruct

    @classmethod
    def allocate(cls, config: ModelConfig, num_blocks: int, block_size: int, dtype: Dtype) -> "Pool":
        """A pool of zeros, whose memory is committed when it is first touched. Raises ``KernelError``."""
        memory = map_huge_pages(max(1, num_blocks * block_bytes(config, block_size, dtype)))
        struct = CacheStruct(
            np.frombuffer(memory, np.uint8).ctypes.data,
            num_blocks,
            config.num_layers,
            config.num_kv_heads,
            block_size,
            config.head_size,
            DTYPE_CODES[dtype],
        )
        return cls(memory, struct)


def block_bytes(config: ModelConfig, block_size: int, dtype: Dtype) -> int:
    """KV bytes of one block over all layers."""
    return 2 * config.num_layers * config.num_kv_heads * config.head_size * block_size * _ELEMENT_BYTES[dtype]
