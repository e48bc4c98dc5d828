"""How near paged attention comes to memory speed.

Decodes with KV of three sizes through the installed kernels, in turn with torch's scaled_dot_product_attention over the
same KV in contiguous memory and with a plain read of as many bytes. Best of the rounds; GB/s of K and V. Run it on an
idle machine: ``python benchmarks/attention_bench.py [--dtype bfloat16] [--isa avx2] [--threads 2]``.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from gpuworker.kernels import AttentionBatch, KVCache, KVCacheShape
from gpuworker.kernels.cpu import CpuOps

NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 9, 3, 64, 16  # SmolLM2-135M
SIZES_MB = (0.6, 25, 98)
SCALE = HEAD_SIZE**-0.5


@dataclass(frozen=True)
class Case:
    """One decode step: `num_seqs` sequences of `context_len` tokens."""

    num_seqs: int
    context_len: int
    cache: KVCache
    tables: torch.Tensor  # [num_seqs, blocks of a sequence] int32
    query: torch.Tensor  # [num_seqs, num_heads, head_size]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one step reads."""
        return self.num_seqs * self.context_len * 2 * NUM_KV_HEADS * HEAD_SIZE * self.query.element_size()


def make_case(ops: CpuOps, size_mb: float, dtype: torch.dtype) -> Case:
    """Sequences of about 512 tokens whose blocks are scattered over a pool of exactly that size."""
    token_bytes = 2 * NUM_KV_HEADS * HEAD_SIZE * dtype.itemsize
    num_tokens = int(size_mb * 1e6 / token_bytes)
    num_seqs = max(1, num_tokens // 512)
    blocks_per_seq = max(1, round(num_tokens / num_seqs / BLOCK_SIZE))
    shape = KVCacheShape(num_seqs * blocks_per_seq, 1, NUM_KV_HEADS, BLOCK_SIZE, HEAD_SIZE)
    cache = ops.allocate(shape, dtype)
    cache.pool.normal_()
    tables = torch.randperm(shape.num_blocks, dtype=torch.int32).view(num_seqs, blocks_per_seq)
    query = torch.randn(num_seqs, NUM_HEADS, HEAD_SIZE).to(dtype)
    return Case(num_seqs, blocks_per_seq * BLOCK_SIZE, cache, tables, query)


def contiguous(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values as [num_seqs, num_kv_heads, context_len, head_size]."""
    blocks = case.cache.pool[case.tables.long(), 0]  # [seqs, blocks, 2, kv_heads, block_size, head_size]
    keys, values = blocks.permute(2, 0, 3, 1, 4, 5).reshape(2, case.num_seqs, NUM_KV_HEADS, case.context_len, HEAD_SIZE)
    return keys.contiguous(), values.contiguous()


def best_seconds(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The fastest of `rounds` for each function, run in turn so that all see the same machine."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure(ops: CpuOps, size_mb: float, dtype: torch.dtype, rounds: int) -> None:
    """Prints one line."""
    case = make_case(ops, size_mb, dtype)
    keys, values = contiguous(case)
    batch = AttentionBatch.from_lists([1] * case.num_seqs, [case.context_len] * case.num_seqs, case.tables.tolist())
    words = case.cache.pool.view(torch.int32).flatten()
    attention = torch.nn.functional.scaled_dot_product_attention
    functions = {
        "read": lambda: words.sum(dtype=torch.int32),
        "sdpa": lambda: attention(case.query.unsqueeze(2), keys, values, scale=SCALE, enable_gqa=True),
        "paged": lambda: ops.paged_attention(case.query, case.cache, 0, batch, SCALE),
    }
    difference = (functions["paged"]().float() - functions["sdpa"]().squeeze(2).float()).abs().max().item()
    rates = {name: case.kv_bytes / seconds / 1e9 for name, seconds in best_seconds(functions, rounds).items()}
    print(
        f"{case.kv_bytes / 1e6:7.1f} MB  {case.num_seqs:4d} x {case.context_len:4d} tokens"
        f"   read {rates['read']:6.1f}   sdpa {rates['sdpa']:6.1f}   paged {rates['paged']:6.1f} GB/s"
        f"   {rates['paged'] / rates['read']:5.2f} of read   max difference {difference:.1e}"
    )


def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--isa", default="auto", help="auto, amx, avx512_bf16, avx512, avx2 or portable")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ops = CpuOps()
    ops.select_isa(arguments.isa)
    print(f"{ops.name}, {arguments.dtype}, {arguments.threads} threads, {NUM_HEADS} heads over {NUM_KV_HEADS} KV heads")
    for size_mb in SIZES_MB:
        measure(ops, size_mb, getattr(torch, arguments.dtype), arguments.rounds)


if __name__ == "__main__":
    main()
