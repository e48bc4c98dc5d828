"""``KernelOps`` over the CUDA kernels (``csrc/cuda``), and the sampler beside them."""

from enum import Enum, auto
from pathlib import Path

import torch
from torch import Tensor

from gpuworker.errors import KernelInputError
from gpuworker.kernels.checks import (
    check_batch,
    check_pairs,
    check_pools,
    check_query,
    check_write,
    require_in_range,
)
from gpuworker.kernels.cuda_device import CudaDevice, Device, what_is_missing
from gpuworker.kernels.cuda_library import HEAD_SIZES, LARGEST_BLOCK_SIZE, CudaLibrary
from gpuworker.kernels.ops import AttentionBatch, KVCache, KVCacheShape
from gpuworker.kernels.structs import DTYPE_CODES, CallStructs
from gpuworker.library import CUDA, installed_library
from gpuworker.row_structs import ROW_BYTES, SampleParams

_BLOCKS_PER_MULTIPROCESSOR = 2  # thread blocks that attention should have at least to keep the device busy
_ROWS_PER_TILE = 16


class Splitting(Enum):
    """Whether attention splits a context over thread blocks; the bits of its result are the same either way."""

    AUTO = auto()  # where one pass would leave multiprocessors idle
    NEVER = auto()
    ALWAYS = auto()


class CudaOps:
    """CUDA kernels on torch's current device and stream. Not for use by several threads at once.

    Tensors must lie on the device, except ``pairs``. A call hands its work over and returns. Swaps run on a stream of
    their own, after all work that was handed over before and before all that comes later, and so do copies.
    """

    def __init__(
        self,
        device: Device | None = None,
        library_path: Path | None = None,
        *,
        splitting: Splitting = Splitting.AUTO,
        reads_ids: bool = False,
    ) -> None:
        """Takes torch's device and the installed library unless others are given. Raises ``KernelsUnavailable``.

        Slots, tables and lengths on the device are trusted; with ``reads_ids`` they are checked, which waits for the
        device at each call.
        """
        self.device: Device = CudaDevice() if device is None else device
        self.library = CudaLibrary(library_path)
        self.splitting = splitting
        self._reads_ids = reads_ids
        self._structs = CallStructs()

    @property
    def name(self) -> str:
        """Which implementation this is, for people."""
        return "cuda"

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``. Refuses shapes for which there are no kernels."""
        check_shape(shape)
        return self.device.allocate(shape, dtype)

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """See ``KernelOps``. Pinned."""
        check_shape(shape)
        return self.device.allocate_host(shape, dtype)

    def write_kv(self, key: Tensor, value: Tensor, cache: KVCache, layer: int, slot_mapping: Tensor) -> None:
        """See ``KernelOps``."""
        check_write(key, value, cache, layer, slot_mapping)
        self._require_here(cache, key=key, value=value, slot_mapping=slot_mapping)
        if self._reads_ids:
            require_in_range("slot_mapping", slot_mapping, cache.shape.num_slots)
        params = self._structs.write_kv(key, value, cache, layer, slot_mapping)
        self.library.check(self.library.write_kv(params, self.device.compute_stream))

    def paged_attention(self, query: Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float) -> Tensor:
        """See ``KernelOps``."""
        check_query(query, cache, layer)
        self._require_here(cache, query=query, block_tables=batch.block_tables)
        if self._reads_ids:
            check_batch(batch, query.shape[0], cache.shape)
        output = torch.empty_like(query, memory_format=torch.contiguous_format)
        params = self._structs.paged_attention(query, output, cache, layer, batch, scale)
        num_bytes = int(self.library.attention_workspace_bytes(params))
        workspace = self.device.workspace(num_bytes) if num_bytes and self._splits(query, cache, batch) else None
        pointer = None if workspace is None else workspace.data_ptr()
        self.library.check(self.library.paged_attention(params, pointer, self.device.compute_stream))
        return output

    def copy_blocks(self, cache: KVCache, pairs: Tensor) -> None:
        """See ``KernelOps``."""
        check_pairs(pairs)
        pairs = pairs.cpu()
        params = self._structs.copy_blocks(cache, pairs)
        self.library.check(self.library.copy_blocks(params, self.device.compute_stream))

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: Tensor) -> None:
        """See ``KernelOps``. Between a device and a pinned pool, or two device pools."""
        check_pairs(pairs)
        check_pools(source, destination)
        pairs = pairs.cpu()
        params = self._structs.swap_blocks(source, destination, pairs)
        self.library.check(self.library.swap_blocks(params, self.device.copy_stream, self.device.compute_stream))

    def sample(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Draws a token per row: [num_rows] int64, the tokens of ``gpuworker.sampling``.

        A row with NaN or +inf has ``NOT_FINITE`` instead, one where all are -inf ``NO_TOKEN``.
        ``logits``: [num_rows, vocab_size], contiguous, with all rules applied. ``rows``: as many ``SamplingRow`` as
        bytes [num_rows, ROW_BYTES], on the device.
        """
        num_rows, vocab_size = logits.shape
        if not logits.is_contiguous() or tuple(rows.shape) != (num_rows, ROW_BYTES):
            raise KernelInputError(
                f"logits {tuple(logits.shape)} with rows {tuple(rows.shape)}: "
                f"must be contiguous and [{num_rows}, {ROW_BYTES}]"
            )
        token_ids = torch.empty(num_rows, dtype=torch.int64, device=logits.device)
        workspace = self.device.workspace(num_rows * ((vocab_size + 3) // 4) * 16)
        params = SampleParams(
            logits=logits.data_ptr(),
            rows=rows.data_ptr(),
            workspace=workspace.data_ptr(),
            token_ids=token_ids.data_ptr(),
            num_logits=num_rows,
            num_rows=num_rows,
            vocab_size=vocab_size,
            dtype=DTYPE_CODES[logits.dtype],
        )
        self.library.check(self.library.sample(params, self.device.compute_stream))
        return token_ids

    def _splits(self, query: Tensor, cache: KVCache, batch: AttentionBatch) -> bool:
        if self.splitting is not Splitting.AUTO:
            return self.splitting is Splitting.ALWAYS
        shape = cache.shape
        num_blocks = most_thread_blocks(query.shape[0], query.shape[1], shape.num_kv_heads, batch.context_lens.numel())
        return num_blocks < _BLOCKS_PER_MULTIPROCESSOR * self.device.num_multiprocessors

    def _require_here(self, cache: KVCache, **tensors: Tensor) -> None:
        for name, tensor in tensors.items():
            if tensor.device != cache.pool.device:
                raise KernelInputError(f"{name} lies on {tensor.device}, the cache on {cache.pool.device}")


def can_be_used() -> bool:
    """Whether there is a device that the kernels run on, and their library is installed."""
    return not what_is_missing() and installed_library(CUDA).is_file()


def most_thread_blocks(num_tokens: int, num_heads: int, num_kv_heads: int, num_seqs: int) -> int:
    """Thread blocks of attention in one pass, at most: tiles of rows of each KV head."""
    return (num_tokens * (num_heads // num_kv_heads) // _ROWS_PER_TILE + num_seqs) * num_kv_heads


def check_shape(shape: KVCacheShape) -> None:
    """Raises ``KernelInputError`` for a pool that the kernels cannot use."""
    if shape.head_size not in HEAD_SIZES:
        raise KernelInputError(f"head_size is {shape.head_size}, but the cuda kernels have {HEAD_SIZES}")
    if shape.block_size > LARGEST_BLOCK_SIZE or shape.block_size & (shape.block_size - 1):
        raise KernelInputError(
            f"block_size is {shape.block_size}, but the cuda kernels take powers of two up to {LARGEST_BLOCK_SIZE}"
        )
