"""Times the CUDA kernels as steps run them: recorded in a graph, over more memory than the caches hold."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from device_report import Budget, Figure

from gpuworker.core.steps import Sample, SamplingParams, SequenceId
from gpuworker.device.rows import CudaRows
from gpuworker.kernels import AttentionBatch, KVCache, KVCacheShape
from gpuworker.kernels.cuda import CudaOps
from gpuworker.model.config import ModelConfig
from gpuworker.model.rotary import Rotary
from gpuworker.sampling_rows import pack

BLOCK_SIZE = 16
NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, HIDDEN, INTERMEDIATE, VOCAB = 32, 8, 128, 4096, 14336, 128256  # of Llama 3 8B
DTYPE = torch.bfloat16
LEAST_BYTES = 1 << 29  # that the calls of one graph read: several times the caches
MOST_LAYERS = 64
CASE_S = 8.0  # that a case may take, with its preparation

Make = Callable[[], Figure]


@dataclass(frozen=True)
class AttentionCase:
    """Sequences of one length, each with ``query_len`` new tokens at its end."""

    num_seqs: int
    query_len: int
    context_len: int

    @property
    def kv_bytes(self) -> int:
        """Keys and values of one layer."""
        return self.num_seqs * self.context_len * 2 * NUM_KV_HEADS * HEAD_SIZE * DTYPE.itemsize

    @property
    def flops(self) -> float:
        """Of one layer's two products, over what each token sees."""
        before = self.context_len - self.query_len
        seen = self.query_len * before + self.query_len * (self.query_len + 1) / 2
        return 4.0 * self.num_seqs * NUM_HEADS * HEAD_SIZE * seen

    @property
    def num_layers(self) -> int:
        """So many that their KV cannot stay in the caches."""
        return min(MOST_LAYERS, max(1, math.ceil(LEAST_BYTES / self.kv_bytes)))


DECODES = [AttentionCase(n, 1, length) for n in (1, 4, 16, 64) for length in (128, 1024, 8192)]
PREFILLS = [AttentionCase(1, length, length) for length in (512, 2048, 8192)]


def figures(ops: CudaOps, budget: Budget) -> Iterator[Figure]:
    """Every figure for which there is time, attention first."""
    for name, make in cases(ops):
        if not budget.allows(CASE_S):
            print(f"no time is left for {name}")
            continue
        yield make()
        torch.cuda.empty_cache()


def cases(ops: CudaOps) -> Iterator[tuple[str, Make]]:
    """What is timed, by name."""
    for case in DECODES:
        yield f"decode {case}", partial(attention, ops, case, "paged attention, decode")
    for case in PREFILLS:
        yield f"prefill {case}", partial(attention, ops, case, "paged attention, prefill")
    for make in (write_kv, rotary, norm, activation, sampling, copy_blocks, swap_out, swap_in):
        yield make.__name__, partial(make, ops)


def copy_rate(ops: CudaOps) -> float:
    """Bytes per second that a copy within the device reads and writes."""
    source, destination = (torch.empty(1 << 30, dtype=torch.uint8, device=ops.device.torch_device) for _ in range(2))
    return 2 * source.nbytes / seconds_of(lambda: destination.copy_(source))


def host_rate(ops: CudaOps) -> float:
    """Bytes per second from pinned host memory to the device."""
    source = ops.device.pinned(1 << 28)
    destination = torch.empty(source.shape, dtype=torch.uint8, device=ops.device.torch_device)
    return source.nbytes / seconds_of(lambda: destination.copy_(source, non_blocking=True))


def seconds_of(work: Callable[[], object]) -> float:
    """Device time of ``work``: the best of three rows of calls, after some that warm up."""
    work()
    once_s = _elapsed_s(work, 1)
    calls = max(3, min(200, math.ceil(0.05 / max(once_s, 1e-6))))
    return min(_elapsed_s(work, calls) for _ in range(3)) / calls


def _elapsed_s(work: Callable[[], object], calls: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3  # it tells milliseconds


def attention(ops: CudaOps, case: AttentionCase, kernel: str) -> Figure:
    """One layer's attention through scattered blocks, and torch's over the same KV in contiguous memory."""
    cache, tables, query = _prepare(ops, case)
    lens = [case.query_len] * case.num_seqs, [case.context_len] * case.num_seqs
    with ops.device.torch_device:
        batch = AttentionBatch.from_lists(*lens, tables.tolist())
    keys, values = _contiguous(cache, tables, case)
    queries = query.view(case.num_seqs, case.query_len, NUM_HEADS, HEAD_SIZE).transpose(1, 2)
    scale, layers = HEAD_SIZE**-0.5, range(case.num_layers)

    def paged() -> None:
        for layer in layers:
            ops.paged_attention(query, cache, layer, batch, scale)

    def contiguous() -> None:
        for layer in layers:
            F.scaled_dot_product_attention(
                queries, keys[layer], values[layer], is_causal=case.query_len > 1, scale=scale, enable_gqa=True
            )

    expected = F.scaled_dot_product_attention(
        queries, keys[0], values[0], is_causal=case.query_len > 1, scale=scale, enable_gqa=True
    )
    actual = ops.paged_attention(query, cache, 0, batch, scale).view(
        case.num_seqs, case.query_len, NUM_HEADS, HEAD_SIZE
    )
    torch.testing.assert_close(actual.transpose(1, 2), expected, rtol=2e-2, atol=2e-2)
    return Figure(
        kernel,
        f"{case.num_seqs} x {case.query_len} of {case.context_len} tokens",
        seconds_of(ops.device.record(paged)) / case.num_layers,
        num_bytes=0.0 if case.query_len > 1 else case.kv_bytes,
        flops=case.flops if case.query_len > 1 else 0.0,
        torch_seconds=seconds_of(ops.device.record(contiguous)) / case.num_layers,
    )


def _prepare(ops: CudaOps, case: AttentionCase) -> tuple[KVCache, torch.Tensor, torch.Tensor]:
    """A pool of random KV, scattered tables [num_seqs, blocks] and queries [num_tokens, num_heads, head_size]."""
    blocks_per_seq = case.context_len // BLOCK_SIZE
    shape = KVCacheShape(case.num_seqs * blocks_per_seq, case.num_layers, NUM_KV_HEADS, BLOCK_SIZE, HEAD_SIZE)
    cache = ops.allocate(shape, DTYPE)
    cache.pool.normal_()
    tables = torch.randperm(shape.num_blocks).view(case.num_seqs, blocks_per_seq)
    return cache, tables, _random(ops, case.num_seqs * case.query_len, NUM_HEADS, HEAD_SIZE)


def _contiguous(cache: KVCache, tables: torch.Tensor, case: AttentionCase) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of all layers, each [num_layers, num_seqs, num_kv_heads, context_len, head_size]."""
    parts = torch.empty(
        2,
        case.num_layers,
        case.num_seqs,
        NUM_KV_HEADS,
        case.context_len,
        HEAD_SIZE,
        dtype=DTYPE,
        device=cache.pool.device,
    )
    for seq, table in enumerate(tables.to(cache.pool.device)):
        blocks = cache.pool[table].permute(2, 1, 3, 0, 4, 5)  # [2, layers, kv_heads, blocks, block_size, head_size]
        parts[:, :, seq] = blocks.reshape(2, case.num_layers, NUM_KV_HEADS, case.context_len, HEAD_SIZE)
    return parts[0], parts[1]


# ---------------------------------------------------------------- kernels that should run at the speed of a copy


def write_kv(ops: CudaOps, num_tokens: int = 16384) -> Figure:
    """Keys and values of a long prefill."""
    cache = ops.allocate(KVCacheShape(num_tokens // BLOCK_SIZE, 1, NUM_KV_HEADS, BLOCK_SIZE, HEAD_SIZE), DTYPE)
    key, value = (_random(ops, num_tokens, NUM_KV_HEADS, HEAD_SIZE) for _ in range(2))
    slots = torch.randperm(num_tokens).to(ops.device.torch_device)
    seconds = seconds_of(ops.device.record(lambda: ops.write_kv(key, value, cache, 0, slots)))
    return Figure("write-kv", f"{num_tokens} tokens", seconds, 2.0 * (key.nbytes + value.nbytes))


def rotary(ops: CudaOps, num_tokens: int = 16384) -> Figure:
    """Queries and keys of a long prefill."""
    sizes = (VOCAB, HIDDEN, INTERMEDIATE, 1, NUM_HEADS, NUM_KV_HEADS, HEAD_SIZE, num_tokens, 1e-5, 5e5)
    angles = Rotary(ModelConfig(*sizes), num_tokens, ops.device.torch_device)
    heads = _random(ops, num_tokens, NUM_HEADS + NUM_KV_HEADS, HEAD_SIZE)
    positions = torch.arange(num_tokens, device=heads.device)
    turn = _rows(ops).turning(angles, positions)
    return Figure("rotary", f"{num_tokens} tokens", _recorded_s(ops, lambda: turn(heads)), 2.0 * heads.nbytes)


def norm(ops: CudaOps, num_tokens: int = 16384) -> Figure:
    """Adds to the residual and norms it."""
    update, residual = _random(ops, num_tokens, HIDDEN), _random(ops, num_tokens, HIDDEN).float()
    weight = torch.ones(HIDDEN, device=residual.device)
    seconds = _recorded_s(ops, lambda: _rows(ops).add_and_norm(residual, update, weight, 1e-5))
    return Figure("rms norm", f"{num_tokens} x {HIDDEN}", seconds, 2.0 * update.nbytes + 2.0 * residual.nbytes)


def activation(ops: CudaOps, num_tokens: int = 8192) -> Figure:
    """The gate of a feed-forward layer."""
    gate_up = _random(ops, num_tokens, 2 * INTERMEDIATE)
    seconds = _recorded_s(ops, lambda: _rows(ops).silu_mul(gate_up))
    return Figure("silu-mul", f"{num_tokens} x {INTERMEDIATE}", seconds, 1.5 * gate_up.nbytes)


def sampling(ops: CudaOps, num_rows: int = 64) -> Figure:
    """A batch's tokens by temperature and top-p; its bytes are the logits', read once."""
    logits = _random(ops, num_rows, VOCAB)
    params = SamplingParams(temperature=0.8, top_p=0.95, seed=1)
    rows = torch.from_numpy(pack([Sample(SequenceId(row), row, params) for row in range(num_rows)])).to(logits.device)
    return Figure(
        "sampler", f"{num_rows} x {VOCAB}", _recorded_s(ops, lambda: ops.sample(logits, rows)), float(logits.nbytes)
    )


def copy_blocks(ops: CudaOps, num_pairs: int = 256) -> Figure:
    """Copy-on-write of many blocks of 32 layers in one launch."""
    cache = _pool(ops, 2 * num_pairs)
    pairs = torch.arange(2 * num_pairs).view(2, num_pairs).t().contiguous()
    seconds = seconds_of(lambda: ops.copy_blocks(cache, pairs))
    return Figure("copy-blocks", f"{num_pairs} blocks", seconds, 2.0 * num_pairs * cache.shape.block_bytes(DTYPE))


def swap_out(ops: CudaOps) -> Figure:
    """Scattered blocks to pinned host memory."""
    return _swap(ops, "swap-blocks out", outwards=True)


def swap_in(ops: CudaOps) -> Figure:
    """Scattered blocks from pinned host memory."""
    return _swap(ops, "swap-blocks in", outwards=False)


def _swap(ops: CudaOps, name: str, *, outwards: bool, num_pairs: int = 128) -> Figure:
    device, host = _pool(ops, 2 * num_pairs), ops.allocate_host(_pool_shape(num_pairs), DTYPE)
    ids = torch.stack([torch.randperm(2 * num_pairs)[:num_pairs], torch.arange(num_pairs)], dim=1)
    source, destination = (device, host) if outwards else (host, device)
    pairs = ids if outwards else ids.flip(1).contiguous()
    seconds = seconds_of(lambda: ops.swap_blocks(source, destination, pairs))
    num_bytes = float(num_pairs * device.shape.block_bytes(DTYPE))
    return Figure(name, f"{num_pairs} blocks", seconds, num_bytes, against_host=True)


def _pool_shape(num_blocks: int) -> KVCacheShape:
    return KVCacheShape(num_blocks, 32, NUM_KV_HEADS, BLOCK_SIZE, HEAD_SIZE)


def _pool(ops: CudaOps, num_blocks: int) -> KVCache:
    return ops.allocate(_pool_shape(num_blocks), DTYPE)


def _random(ops: CudaOps, *extents: int) -> torch.Tensor:
    return torch.randn(extents, dtype=DTYPE, device=ops.device.torch_device)


def _rows(ops: CudaOps) -> CudaRows:
    return CudaRows(ops.library, ops.device, DTYPE)


def _recorded_s(ops: CudaOps, work: Callable[[], object]) -> float:
    def run() -> None:
        work()

    return seconds_of(ops.device.record(run))
