"""The C interface of ``csrc/include/octavo_cuda.h``, loaded with ctypes: the same structs, the same names."""

import ctypes
from pathlib import Path

from gpuworker.library import (
    CUDA,
    CopyBlocksParams,
    LoadedLibrary,
    PagedAttentionParams,
    SwapBlocksParams,
    WriteKVParams,
)
from gpuworker.row_structs import ActivationParams, NormParams, RotaryParams, SampleParams

HEAD_SIZES = (64, 80, 96, 128, 256)
LARGEST_BLOCK_SIZE = 256  # tokens


class CudaLibrary(LoadedLibrary):
    """The functions of the library. A stream is the address of a ``cudaStream_t``; None is the default stream."""

    def __init__(self, path: Path | None = None) -> None:
        """Loads the installed library, or the one at ``path``. Raises ``KernelsUnavailable``."""
        super().__init__(CUDA, path)
        stream = ctypes.c_void_p
        self.write_kv = self.declare("octavo_cuda_write_kv", (WriteKVParams, stream))
        self.attention_workspace_bytes = self.declare(
            "octavo_cuda_attention_workspace_bytes", (PagedAttentionParams,), ctypes.c_int64
        )
        self.paged_attention = self.declare(
            "octavo_cuda_paged_attention", (PagedAttentionParams, ctypes.c_void_p, stream)
        )
        self.copy_blocks = self.declare("octavo_cuda_copy_blocks", (CopyBlocksParams, stream))
        self.swap_blocks = self.declare("octavo_cuda_swap_blocks", (SwapBlocksParams, stream, stream))
        self.rotary = self.declare("octavo_cuda_rotary", (RotaryParams, stream))
        self.rms_norm = self.declare("octavo_cuda_rms_norm", (NormParams, stream))
        self.silu_mul = self.declare("octavo_cuda_silu_mul", (ActivationParams, stream))
        self.sample = self.declare("octavo_cuda_sample", (SampleParams, stream))
