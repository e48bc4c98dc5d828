"""What a model needs from KV memory: one contract, several implementations.

The memory is block-major: all layers of a block lie side by side, so that moving a block is one copy::

    pool  [num_blocks][num_layers][K|V][num_kv_heads][block_size][head_size]

That is its size. How a layer of a block is laid out inside is the implementation's own (``csrc/README.md``): a pool is
written and read through the implementation that allocated it.

A *slot* is a place for one token: ``slot = block_id * block_size + offset``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from gpuworker.errors import KernelInputError

SUPPORTED_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class KVCacheShape:
    """Extents of a pool of KV blocks."""

    num_blocks: int
    num_layers: int
    num_kv_heads: int
    block_size: int  # tokens
    head_size: int  # elements, a multiple of 8

    def __post_init__(self) -> None:
        for field in ("num_layers", "num_kv_heads", "block_size", "head_size"):
            if getattr(self, field) < 1:
                raise KernelInputError(f"{field} is {getattr(self, field)}, must be at least 1")
        if self.num_blocks < 0:
            raise KernelInputError(f"num_blocks is {self.num_blocks}, must not be negative")
        if self.head_size % 8:
            raise KernelInputError(f"head_size is {self.head_size}, must be a multiple of 8")

    @property
    def dimensions(self) -> tuple[int, int, int, int, int, int]:
        """Shape of the pool: [num_blocks, num_layers, 2, num_kv_heads, block_size, head_size]."""
        return (self.num_blocks, self.num_layers, 2, self.num_kv_heads, self.block_size, self.head_size)

    @property
    def num_slots(self) -> int:
        """Tokens for which the pool has room."""
        return self.num_blocks * self.block_size

    def block_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one block over all layers, K and V together."""
        return self.num_layers * 2 * self.num_kv_heads * self.block_size * self.head_size * dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class KVCache:
    """A pool of KV blocks: where they lie and how large they are."""

    shape: KVCacheShape
    pool: torch.Tensor  # [num_blocks, num_layers, 2, num_kv_heads, block_size, head_size], contiguous

    def __post_init__(self) -> None:
        if tuple(self.pool.shape) != self.shape.dimensions:
            raise KernelInputError(f"pool has shape {tuple(self.pool.shape)}, must be {self.shape.dimensions}")
        if not self.pool.is_contiguous():
            raise KernelInputError("pool must be contiguous")
        require_supported(self.pool.dtype)

    @property
    def dtype(self) -> torch.dtype:
        """Type of every element."""
        return self.pool.dtype


@dataclass(frozen=True, slots=True, eq=False)
class AttentionBatch:
    """The ragged batch of one step, the same for all layers.

    Sequence ``s`` owns the query tokens ``query_starts[s]`` to ``query_starts[s + 1]``. They are the last tokens of its
    context of ``context_lens[s]`` tokens, so one new token is a decode and several are a chunk of a prefill.
    """

    query_starts: torch.Tensor  # [num_seqs + 1] int32, from 0 to num_tokens, never falling
    context_lens: torch.Tensor  # [num_seqs] int32, tokens with the new ones
    block_tables: torch.Tensor  # [num_seqs, max_blocks] int32; entries past the context are not read

    def __post_init__(self) -> None:
        num_seqs = self.context_lens.numel()
        _require_int32("context_lens", self.context_lens, (num_seqs,))
        _require_int32("query_starts", self.query_starts, (num_seqs + 1,))
        max_blocks = self.block_tables.shape[-1] if self.block_tables.dim() == 2 else 0
        _require_int32("block_tables", self.block_tables, (num_seqs, max_blocks))

    @classmethod
    def from_lists(
        cls, query_lens: Sequence[int], context_lens: Sequence[int], block_tables: Sequence[Sequence[int]]
    ) -> "AttentionBatch":
        """The batch of sequences with ``query_lens`` new tokens each; tables may differ in length."""
        query_starts = torch.zeros(len(query_lens) + 1, dtype=torch.int32)
        query_starts[1:] = torch.tensor(query_lens, dtype=torch.int32).cumsum(0)
        tables = torch.zeros(len(block_tables), max(map(len, block_tables), default=0), dtype=torch.int32)
        for row, table in zip(tables, block_tables, strict=True):
            row[: len(table)] = torch.tensor(table, dtype=torch.int32)
        return cls(query_starts, torch.tensor(context_lens, dtype=torch.int32), tables)


class KernelOps(Protocol):
    """Operations on KV memory.

    A call that raises ``KernelInputError`` wrote nothing. Query, key, value and cache share one dtype; products are
    accumulated in float32. The result of a token depends on its query, its context and nothing else: not on what
    shares the batch, the chunk it came in, the number of threads or the block size.
    """

    @property
    def name(self) -> str:
        """Which implementation this is, for people."""

    def allocate(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """A pool of zeros where the kernels work. Host memory is committed when it is first touched.

        Raises ``KernelInputError`` for a shape or type for which there are no kernels.
        """

    def allocate_host(self, shape: KVCacheShape, dtype: torch.dtype) -> KVCache:
        """A pool of zeros in host memory, with which ``swap_blocks`` exchanges blocks."""

    def write_kv(
        self, key: torch.Tensor, value: torch.Tensor, cache: KVCache, layer: int, slot_mapping: torch.Tensor
    ) -> None:
        """Stores the keys and values of new tokens in their slots.

        ``key``, ``value``: [num_tokens, num_kv_heads, head_size], rows may be strided over tokens.
        ``slot_mapping``: [num_tokens] int64, all different.
        """

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        """Causal attention of the new tokens over their contexts, read through the block tables (PagedAttention, §4.1).

        ``query``: [num_tokens, num_heads, head_size], rows may be strided over tokens; ``num_heads`` is a multiple of
        ``num_kv_heads`` and consecutive query heads share a KV head. The new tokens' KV must have been written.
        Slots past the context are never read, whatever they hold. Returns [num_tokens, num_heads, head_size].
        """

    def copy_blocks(self, cache: KVCache, pairs: torch.Tensor) -> None:
        """Copies whole blocks inside a pool, as if all of them were read before any is written (§4.4).

        ``pairs``: [num_pairs, 2] int64, source and destination; destinations are all different.
        """

    def swap_blocks(self, source: KVCache, destination: KVCache, pairs: torch.Tensor) -> None:
        """Copies whole blocks from one pool to another (§4.5); runs of ids adjacent in both are one copy.

        ``pairs``: [num_pairs, 2] int64, block of ``source`` and of ``destination``; destinations are all different.
        """


def require_supported(dtype: torch.dtype) -> None:
    """Raises for an element type that no kernel handles."""
    if dtype not in SUPPORTED_DTYPES:
        raise KernelInputError(f"dtype is {dtype}, must be one of {', '.join(map(str, SUPPORTED_DTYPES))}")


def _require_int32(name: str, tensor: torch.Tensor, shape: tuple[int, ...]) -> None:
    if tensor.dtype != torch.int32 or tuple(tensor.shape) != shape or not tensor.is_contiguous():
        raise KernelInputError(
            f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, must be contiguous torch.int32 of shape {shape}"
        )
