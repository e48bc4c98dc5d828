"""How near paged attention on the CPU comes to memory speed.

Decodes with KV of three sizes through the installed kernels, in turn with torch's scaled_dot_product_attention over
the same KV in contiguous memory, with a plain read of as many bytes (from a cache if they fit one), and with a read of
more bytes than any cache holds. KV lies in huge pages, its blocks in random order. Medians over the rounds, GB/s of K
and V; what is compared shares a round, so that ratios hold on a busy machine too:
``python benchmarks/attention_bench.py [--dtype bfloat16] [--isa avx2] [--threads 2]``.
"""

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpuworker.kernels import AttentionBatch, KVCache, KVCacheShape
from gpuworker.kernels.cpu import CpuOps
from gpuworker.library import CPU, CacheStruct, KernelLibrary, PagedAttentionParams, installed_library

NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 9, 3, 64, 16  # SmolLM2-135M
SIZES_MB = (0.6, 25, 98)
UNCACHED_BYTES = 400_000_000
SCALE = HEAD_SIZE**-0.5
DTYPE_CODES = {torch.float32: 0, torch.bfloat16: 1}


@dataclass(frozen=True)
class Case:
    """One decode step: `num_seqs` sequences of `context_len` tokens."""

    num_seqs: int
    context_len: int
    cache: KVCache
    tables: torch.Tensor  # [num_seqs, blocks of a sequence] int32
    query: torch.Tensor  # [num_seqs, num_heads, head_size]
    keys: torch.Tensor  # [num_seqs, num_kv_heads, context_len, head_size]
    values: torch.Tensor  # [num_seqs, num_kv_heads, context_len, head_size]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one step reads."""
        return self.keys.nbytes + self.values.nbytes


def make_case(ops: CpuOps, size_mb: float, dtype: torch.dtype) -> Case:
    """Sequences of about 512 tokens whose blocks are scattered over a pool of exactly that size."""
    token_bytes = 2 * NUM_KV_HEADS * HEAD_SIZE * dtype.itemsize
    num_tokens = int(size_mb * 1e6 / token_bytes)
    num_seqs = max(1, num_tokens // 512)
    blocks_per_seq = max(1, round(num_tokens / num_seqs / BLOCK_SIZE))
    context_len = blocks_per_seq * BLOCK_SIZE
    shape = KVCacheShape(num_seqs * blocks_per_seq, 1, NUM_KV_HEADS, BLOCK_SIZE, HEAD_SIZE)
    cache = ops.allocate(shape, dtype)
    tables = torch.randperm(shape.num_blocks, dtype=torch.int32).view(num_seqs, blocks_per_seq)
    keys, values = torch.randn(2, num_seqs, NUM_KV_HEADS, context_len, HEAD_SIZE).to(dtype)
    slots = (tables.long().unsqueeze(-1) * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()
    key_rows, value_rows = (x.transpose(1, 2).flatten(0, 1).contiguous() for x in (keys, values))
    ops.write_kv(key_rows, value_rows, cache, 0, slots)
    query = torch.randn(num_seqs, NUM_HEADS, HEAD_SIZE).to(dtype)
    return Case(num_seqs, context_len, cache, tables, query, keys.contiguous(), values.contiguous())


class Measured:
    """The library's functions over one case, called without anything around them."""

    def __init__(self, case: Case, uncached: torch.Tensor) -> None:
        """`uncached`: more memory than fits a cache."""
        self._case, self._uncached = case, uncached
        self._library = KernelLibrary()
        self._read = ctypes.CDLL(str(installed_library(CPU))).octavo_cpu_read
        self._read.argtypes, self._read.restype = (ctypes.c_void_p, ctypes.c_int64), ctypes.c_uint64
        lens = [case.context_len] * case.num_seqs
        self._batch = AttentionBatch.from_lists([1] * case.num_seqs, lens, case.tables.tolist())
        self.output = torch.empty_like(case.query)
        self._params = self._make_params()

    def paged(self) -> None:
        """Our attention."""
        self._library.check(self._library.paged_attention(self._params))

    def sdpa(self) -> torch.Tensor:
        """Torch's attention."""
        attention = torch.nn.functional.scaled_dot_product_attention
        case = self._case
        return attention(case.query.unsqueeze(2), case.keys, case.values, scale=SCALE, enable_gqa=True)

    def read(self) -> None:
        """As many bytes as attention reads, in order."""
        self._read(self._case.cache.pool.data_ptr(), self._case.kv_bytes)

    def memory(self) -> None:
        """More bytes than a cache holds."""
        self._read(self._uncached.data_ptr(), self._uncached.nbytes)

    def _make_params(self) -> PagedAttentionParams:
        case, shape = self._case, self._case.cache.shape
        pool = case.cache.pool.data_ptr()
        extents = (shape.num_blocks, shape.num_layers, shape.num_kv_heads, shape.block_size, shape.head_size)
        cache = CacheStruct(pool, *extents, DTYPE_CODES[case.cache.dtype])
        batch = (self._batch.query_starts, self._batch.context_lens, self._batch.block_tables)
        pointers = (x.data_ptr() for x in (case.query, self.output, *batch))
        tables = self._batch.block_tables.shape
        return PagedAttentionParams(
            cache, *pointers, case.num_seqs, NUM_HEADS * HEAD_SIZE, *tables, NUM_HEADS, 0, SCALE
        )


def seconds_of(function: Callable[[], object]) -> float:
    """One call; of one thread its own time, which other programs do not add to."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    function()
    return clock() - start


def measure(ops: CpuOps, size_mb: float, dtype: torch.dtype, uncached: torch.Tensor, rounds: int) -> None:
    """Prints one line."""
    case = make_case(ops, size_mb, dtype)
    measured = Measured(case, uncached)
    measured.paged()
    difference = (measured.output.float() - measured.sdpa().squeeze(2).float()).abs().max().item()
    functions = {"memory": measured.memory, "read": measured.read, "sdpa": measured.sdpa, "paged": measured.paged}
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            if name != "memory":
                function()  # the others' data has left the caches
            taken[name].append(seconds_of(function))
    sizes = {name: uncached.nbytes if name == "memory" else case.kv_bytes for name in functions}
    rates = {name: [sizes[name] / seconds / 1e9 for seconds in taken[name]] for name in functions}
    against = {name: statistics.median(map(float.__truediv__, rates["paged"], rates[name])) for name in functions}
    figures = "   ".join(f"{name} {statistics.median(rates[name]):5.1f}" for name in functions)
    print(
        f"{str(dtype).removeprefix('torch.'):8} {case.kv_bytes / 1e6:5.1f} MB {case.num_seqs:4d} x {case.context_len}"
        f"   {figures} GB/s   paged/memory {against['memory']:4.2f}   paged/read {against['read']:4.2f}"
        f"   max difference {difference:.0e}"
    )


def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "both"], default="both")
    parser.add_argument("--isa", default="auto", help="auto, amx, avx512_bf16, avx512, avx2 or portable")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ops = CpuOps()
    ops.select_isa(arguments.isa)
    uncached = ops.allocate(KVCacheShape(UNCACHED_BYTES // 65536, 1, 1, 128, 64), torch.float32).pool
    uncached.fill_(1.0)
    print(f"{ops.name}, {arguments.threads} threads, {NUM_HEADS} heads over {NUM_KV_HEADS} KV heads")
    for dtype in ("float32", "bfloat16") if arguments.dtype == "both" else (arguments.dtype,):
        for size_mb in SIZES_MB:
            measure(ops, size_mb, getattr(torch, dtype), uncached, arguments.rounds)


if __name__ == "__main__":
    main()
