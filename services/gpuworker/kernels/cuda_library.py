"""The C interface of ``csrc/include/octavo_cuda.h``, loaded with ctypes: the same structs, the same names."""

import ctypes
from pathlib import Path

from gpuworker.library import (
    CopyBlocksParams,
    LibraryKind,
    LoadedLibrary,
    PagedAttentionParams,
    SwapBlocksParams,
    WriteKVParams,
)

CUDA = LibraryKind("cuda", "liboctavo_cuda.so", "build and install it with `make cuda`, which needs nvcc")

NOT_FINITE = -1  # OCTAVO_LOGITS_NOT_FINITE
HEAD_SIZES = (64, 80, 96, 128, 256)
LARGEST_BLOCK_SIZE = 256  # tokens


class RotaryParams(ctypes.Structure):
    """``octavo_rotary_params``."""

    _fields_ = (
        ("heads", ctypes.c_void_p),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("token_stride", ctypes.c_int64),
        ("num_heads", ctypes.c_int32),
        ("head_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class NormParams(ctypes.Structure):
    """``octavo_norm_params``."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("hidden_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )


class ActivationParams(ctypes.Structure):
    """``octavo_activation_params``."""

    _fields_ = (
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("width", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


class SamplingRow(ctypes.Structure):
    """``octavo_sampling_row``."""

    _fields_ = (
        ("top_p", ctypes.c_double),
        ("seed", ctypes.c_uint64),
        ("seen_start", ctypes.c_int64),
        ("seen_end", ctypes.c_int64),
        ("position", ctypes.c_uint32),
        ("choice_index", ctypes.c_uint32),
        ("top_k", ctypes.c_int32),
        ("temperature", ctypes.c_float),
        ("log_min_p", ctypes.c_float),
        ("repetition_penalty", ctypes.c_float),
        ("frequency_penalty", ctypes.c_float),
        ("presence_penalty", ctypes.c_float),
    )


ROW_BYTES = ctypes.sizeof(SamplingRow)


class SampleParams(ctypes.Structure):
    """``octavo_sample_params``."""

    _fields_ = (
        ("logits", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("seen_token_ids", ctypes.c_void_p),
        ("output_counts", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("token_ids", ctypes.c_void_p),
        ("num_rows", ctypes.c_int32),
        ("vocab_size", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
    )


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
