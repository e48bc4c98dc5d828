"""What every ``KernelOps`` promises, held against dense attention in float64."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from doubles import emulated_cuda
from doubles.stored_kv import stored_kv
from gpuworker.kernels import AttentionBatch, KernelInputError, KernelOps, KVCache, KVCacheShape, load_ops
from gpuworker.kernels import cuda as cuda_kernels
from gpuworker.kernels.cpu import CpuOps
from gpuworker.kernels.cuda import CudaOps, Splitting

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NAN = float("nan")
TOLERANCES = {torch.float32: (2e-6, 2e-6), torch.bfloat16: (2**-8, 2**-12), torch.float16: (2**-11, 2**-12)}
CUDA = {"one pass": Splitting.NEVER, "split": Splitting.ALWAYS}


def runnable_implementations() -> list[str]:
    cpu_ops, names = CpuOps(), ["reference"]
    for isa in ("portable", "avx2", "avx512"):
        with suppress(KernelInputError):
            cpu_ops.select_isa(isa)
            names.append(cpu_ops.name)
    cpu_ops.select_isa("auto")
    if emulated_cuda.LIBRARY.is_file():
        names += [f"emulated-cuda[{splitting}]" for splitting in CUDA]
    if cuda_kernels.can_be_used():
        names += [f"cuda[{splitting}]" for splitting in CUDA]
    return names


@pytest.fixture(params=runnable_implementations())
def ops(request: pytest.FixtureRequest) -> Iterator[KernelOps]:
    """On a real device all tensors of a test lie there."""
    implementation, _, variant = request.param.removesuffix("]").partition("[")
    if implementation == "reference":
        yield load_ops("reference")
    elif implementation == "emulated-cuda":
        yield emulated_cuda.emulated_ops(CUDA[variant])
    elif implementation == "cuda":
        cuda_ops = CudaOps(splitting=CUDA[variant], reads_ids=True)
        with cuda_ops.device.torch_device:
            yield cuda_ops
    else:
        cpu_ops = CpuOps()
        cpu_ops.select_isa(variant)
        yield cpu_ops
        cpu_ops.select_isa("auto")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Contexts:
    """Sequences whose KV lies in a pool that holds NaN everywhere else."""

    cache: KVCache
    layer: int
    lens: Sequence[int]
    tables: Sequence[Sequence[int]]
    keys: Sequence[torch.Tensor]  # each [context_len, num_kv_heads, head_size]
    values: Sequence[torch.Tensor]

    def batch(self, query_lens: Sequence[int]) -> AttentionBatch:
        return AttentionBatch.from_lists(query_lens, self.lens, self.tables)


def slots(table: Sequence[int], block_size: int, length: int) -> torch.Tensor:
    return torch.tensor(
        [table[i // block_size] * block_size + i % block_size for i in range(length)], dtype=torch.int64
    )


def make_shape(num_blocks: int, block_size: int = 16, *, num_kv_heads: int = 2, head_size: int = 64) -> KVCacheShape:
    return KVCacheShape(num_blocks, 2, num_kv_heads, block_size, head_size)


def is_cuda(ops: KernelOps) -> bool:
    return isinstance(ops, CudaOps)


def is_emulated(ops: KernelOps) -> bool:
    return isinstance(ops, CudaOps) and ops.device.torch_device.type == "cpu"


def skip_what_is_not_offered(ops: KernelOps, shape: KVCacheShape, dtype: torch.dtype, longest: int) -> None:
    if isinstance(ops, CpuOps) and dtype == torch.float16:
        pytest.skip("no CPU kernel has this type")
    if isinstance(ops, CudaOps) and not emulated_cuda.supports(shape):
        pytest.skip("no CUDA kernel has this shape")
    if isinstance(ops, CudaOps) and ops.splitting is Splitting.ALWAYS and longest <= 512:
        pytest.skip("too short to be split, so the same as one pass")


def write_contexts(
    ops: KernelOps, lens: Sequence[int], *, dtype: torch.dtype = torch.float32, seed: int = 0, **shape: int
) -> Contexts:
    """Writes random KV for sequences of these lengths into scattered blocks of a pool with blocks to spare."""
    torch.manual_seed(seed)
    block_size = shape.get("block_size", 16)
    nums = [-(-length // block_size) for length in lens]
    pool_shape = make_shape(sum(nums) + 5, **shape)
    skip_what_is_not_offered(ops, pool_shape, dtype, max(lens))
    cache = ops.allocate(pool_shape, dtype)
    cache.pool.fill_(NAN)
    ids = iter(torch.randperm(cache.shape.num_blocks).tolist())
    tables = [[next(ids) for _ in range(num)] for num in nums]
    token = (cache.shape.num_kv_heads, cache.shape.head_size)
    keys = [torch.randn(length, *token).to(dtype) for length in lens]
    values = [torch.randn(length, *token).to(dtype) for length in lens]
    mapping = torch.cat([slots(table, block_size, length) for table, length in zip(tables, lens, strict=True)])
    ops.write_kv(torch.cat(keys), torch.cat(values), cache, 1, mapping)
    return Contexts(cache, 1, lens, tables, keys, values)


def dense_attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Causal attention of the last tokens of one context in float64: [num_new, num_heads, head_size]."""
    group = query.shape[1] // keys.shape[1]
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.double(), k) * scale
    positions = torch.arange(len(keys))
    hidden = positions[None, :] > positions[len(keys) - len(query) :, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)


def assert_attends(ops: KernelOps, contexts: Contexts, query_lens: Sequence[int], group: int = 3) -> None:
    """The last ``query_lens`` tokens of the contexts, in one call, come out as from dense attention."""
    shape, dtype = contexts.cache.shape, contexts.cache.dtype
    scale = shape.head_size**-0.5
    query = torch.randn(sum(query_lens), shape.num_kv_heads * group, shape.head_size).to(dtype)
    output = ops.paged_attention(query, contexts.cache, contexts.layer, contexts.batch(query_lens), scale)
    assert output.dtype == dtype
    parts = zip(query.split(list(query_lens)), contexts.keys, contexts.values, strict=True)
    expected = torch.cat([dense_attention(q, k, v, scale) for q, k, v in parts])
    relative, absolute = TOLERANCES[dtype]
    if is_cuda(ops) and dtype != torch.float32:
        absolute = relative * 2  # tensor cores take the weights in 16 bits
    torch.testing.assert_close(output.double(), expected, rtol=relative, atol=absolute)


# ---------------------------------------------------------------- write_kv


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("block_size", "head_size"), [(16, 64), (4, 64), (32, 72)])
def test_keys_and_values_land_in_their_slots_and_nowhere_else(
    ops: KernelOps, dtype: torch.dtype, block_size: int, head_size: int
) -> None:
    contexts = write_contexts(ops, [70], dtype=dtype, block_size=block_size, head_size=head_size)
    untouched, written = (stored_kv(ops, contexts.cache, layer) for layer in (0, 1))
    expected = torch.full_like(written, NAN)
    for position in range(70):
        block, offset = contexts.tables[0][position // block_size], position % block_size
        expected[block, 0, :, offset] = contexts.keys[0][position]
        expected[block, 1, :, offset] = contexts.values[0][position]
    torch.testing.assert_close(written, expected, rtol=0, atol=0, equal_nan=True)
    assert untouched.isnan().all()


def test_keys_may_be_a_slice_of_a_fused_projection(ops: KernelOps) -> None:
    cache = ops.allocate(make_shape(2), torch.float32)
    fused = torch.randn(3, 4, 64)
    ops.write_kv(fused[:, :2], fused[:, 2:], cache, 0, torch.tensor([16, 17, 18]))
    assert torch.equal(stored_kv(ops, cache, 0)[1, :, :, :3].movedim(2, 0).reshape(3, 4, 64), fused)


# ---------------------------------------------------------------- paged_attention


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 4, 8, 16, 32, 128, 256])
def test_decodes_and_chunks_share_a_call_at_every_block_size(
    ops: KernelOps, block_size: int, dtype: torch.dtype
) -> None:
    contexts = write_contexts(ops, [1, 37, 300, 130, 600], block_size=block_size, dtype=dtype)
    assert_attends(ops, contexts, [1, 37, 1, 45, 3])


@pytest.mark.parametrize("length", [1, 3, 4, 5, 8, 9, 31, 32, 33, 63, 64, 65, 511, 512, 513, 1025])
def test_context_lengths_around_the_borders_of_blocks_tiles_and_partitions(ops: KernelOps, length: int) -> None:
    assert_attends(ops, write_contexts(ops, [length], block_size=4), [1])
    assert_attends(ops, write_contexts(ops, [length], block_size=4), [min(length, 40)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_size", [8, 64, 72, 80, 96, 128])
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7, 40])
def test_head_sizes_and_query_heads_that_share_a_kv_head(
    ops: KernelOps, head_size: int, group: int, dtype: torch.dtype
) -> None:
    assert_attends(ops, write_contexts(ops, [50, 20], head_size=head_size, dtype=dtype), [9, 1], group)


def test_sequences_that_share_blocks_and_a_block_that_repeats(ops: KernelOps) -> None:
    one = write_contexts(ops, [48])
    table, keys, values = one.tables[0], one.keys[0], one.values[0]
    again = [table[2], table[2], table[0]]
    order = torch.cat([torch.arange(32, 48), torch.arange(32, 48), torch.arange(0, 16)])
    shared = replace(
        one,
        lens=[48, 20, 48],
        tables=[table, table[:2], again],
        keys=[keys, keys[:20], keys[order]],
        values=[values, values[:20], values[order]],
    )
    assert_attends(ops, shared, [2, 1, 1])


def test_queries_may_be_a_slice_of_a_fused_projection(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [20])
    fused = torch.randn(5, 10, 64)
    sliced = ops.paged_attention(fused[:, :6], contexts.cache, 1, contexts.batch([5]), 0.125)
    assert torch.equal(
        sliced, ops.paged_attention(fused[:, :6].contiguous(), contexts.cache, 1, contexts.batch([5]), 0.125)
    )


def test_scores_far_apart_neither_overflow_nor_vanish(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [600])
    query = torch.randn(1, 6, 64) * 300
    output = ops.paged_attention(query, contexts.cache, 1, contexts.batch([1]), 1.0)
    expected = dense_attention(query, contexts.keys[0], contexts.values[0], 1.0)
    torch.testing.assert_close(output.double(), expected, rtol=1e-2, atol=1e-2)


def test_an_empty_batch_and_a_sequence_without_new_tokens_give_nothing(ops: KernelOps) -> None:
    contexts = write_contexts(ops, [20, 0, 30])
    nothing = torch.empty(0, 6, 64)
    assert ops.paged_attention(nothing, contexts.cache, 1, AttentionBatch.from_lists([], [], []), 1.0).shape == (
        0,
        6,
        64,
    )
    assert_attends(ops, contexts, [0, 0, 2])
    before = contexts.cache.pool.clone()
    ops.write_kv(torch.empty(0, 2, 64), torch.empty(0, 2, 64), contexts.cache, 0, torch.empty(0, dtype=torch.int64))
    ops.copy_blocks(contexts.cache, torch.empty(0, 2, dtype=torch.int64))
    torch.testing.assert_close(contexts.cache.pool, before, rtol=0, atol=0, equal_nan=True)


def test_offsets_beyond_two_to_the_31_elements(ops: KernelOps) -> None:
    """The pool spans 5 GiB of address space, of which the few blocks used are ever touched."""
    cache = ops.allocate(KVCacheShape(5000, 1, 8, 256, 128), torch.bfloat16)
    assert cache.pool.numel() > 2**31
    table = [4999, 0, 4097]
    keys, values = (torch.randn(600, 8, 128).bfloat16() for _ in range(2))
    ops.write_kv(keys, values, cache, 0, slots(table, 256, 600))
    assert_attends(ops, Contexts(cache, 0, [600], [table], [keys], [values]), [2], group=1)
    ops.copy_blocks(cache, torch.tensor([[4097, 4998]]))
    assert torch.equal(cache.pool[4998], cache.pool[4097])


# ---------------------------------------------------------------- memory never changes the answer


def attend_in_chunks(ops: KernelOps, contexts: Contexts, query: torch.Tensor, chunk: int) -> torch.Tensor:
    """The whole first sequence, ``chunk`` tokens at a time; one at a time is a decode."""
    outputs = []
    for part in query.split(chunk):
        done = sum(map(len, outputs)) + len(part)
        batch = AttentionBatch.from_lists([len(part)], [done], contexts.tables[:1])
        outputs.append(ops.paged_attention(part, contexts.cache, 1, batch, 0.125))
    return torch.cat(outputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [1, 3])
def test_decoding_and_prefilling_in_any_chunks_give_the_same_bits(
    ops: KernelOps, dtype: torch.dtype, group: int
) -> None:
    length, head_size = 72 if is_emulated(ops) else 1100, 80 if is_cuda(ops) else 72
    contexts = write_contexts(ops, [length], dtype=dtype, head_size=head_size)
    query = torch.randn(length, 2 * group, head_size).to(dtype)
    decoded = attend_in_chunks(ops, contexts, query, 1)
    for chunk in (2, 7, 64, 500, length):
        assert torch.equal(attend_in_chunks(ops, contexts, query, chunk), decoded), f"chunks of {chunk}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_threads_leave_every_bit_alone(ops: KernelOps, dtype: torch.dtype) -> None:
    torch.set_num_threads(2)
    contexts = write_contexts(ops, [1100, 40, 700, 5], dtype=dtype)
    query_lens = [1, 30, 80, 1]
    query = torch.randn(sum(query_lens), 6, 64).to(dtype)
    together = ops.paged_attention(query, contexts.cache, 1, contexts.batch(query_lens), 0.125).split(query_lens)
    torch.set_num_threads(1)
    for seq, part in enumerate(query.split(query_lens)):
        batch = AttentionBatch.from_lists([len(part)], [contexts.lens[seq]], [contexts.tables[seq]])
        assert torch.equal(ops.paged_attention(part, contexts.cache, 1, batch, 0.125), together[seq])


def test_the_block_size_leaves_every_bit_alone(ops: KernelOps) -> None:
    query, keys, values = torch.randn(20, 6, 64), torch.randn(700, 2, 64), torch.randn(700, 2, 64)
    outputs = []
    for block_size in (1, 16, 64 if is_cuda(ops) else 48, 256):
        contexts = write_contexts(ops, [700], block_size=block_size)
        ops.write_kv(keys, values, contexts.cache, 1, slots(contexts.tables[0], block_size, 700))
        outputs.append(ops.paged_attention(query, contexts.cache, 1, contexts.batch([20]), 0.125))
    assert all(torch.equal(output, outputs[0]) for output in outputs)


# ---------------------------------------------------------------- copies and swaps


def numbered_pool(ops: KernelOps, num_blocks: int, first: int = 0) -> KVCache:
    """Every element of block b is first + b."""
    cache = ops.allocate(KVCacheShape(num_blocks, 2, 1, 4, 64), torch.float32)
    cache.pool.add_(torch.arange(first, first + num_blocks).view(-1, 1, 1, 1, 1, 1))
    return cache


def block_numbers(cache: KVCache) -> list[int]:
    firsts = cache.pool.flatten(1)[:, :1]
    assert (cache.pool.flatten(1) == firsts).all(), "a block was copied in part"
    return firsts.flatten().int().tolist()


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([[0, 3]], [0, 1, 2, 0, 4]),
        ([[0, 1], [1, 2], [2, 3]], [0, 0, 1, 2, 4]),
        ([[2, 3], [1, 2], [0, 1]], [0, 0, 1, 2, 4]),
        ([[0, 1], [1, 0]], [1, 0, 2, 3, 4]),
        ([[0, 1], [1, 2], [2, 0], [0, 3], [4, 4]], [2, 0, 1, 0, 4]),
        ([[0, 1], [1, 0], [2, 3], [3, 2]], [1, 0, 3, 2, 4]),
    ],
    ids=["one", "chain", "chain backwards", "swap", "cycle with a tail", "two cycles"],
)
def test_blocks_are_copied_as_if_all_were_read_first(
    ops: KernelOps, pairs: list[list[int]], expected: list[int]
) -> None:
    cache = numbered_pool(ops, 5)
    ops.copy_blocks(cache, torch.tensor(pairs))
    assert block_numbers(cache) == expected


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_any_copies_equal_a_gather_followed_by_a_scatter(ops: KernelOps, moves: dict[int, int]) -> None:
    cache = numbered_pool(ops, 10)
    pairs = [[source, destination] for destination, source in moves.items()]
    ops.copy_blocks(cache, torch.tensor(pairs, dtype=torch.int64).view(-1, 2))
    assert block_numbers(cache) == [moves.get(block, block) for block in range(10)]


def test_blocks_are_swapped_out_and_in_again(ops: KernelOps) -> None:
    device, host = numbered_pool(ops, 8), numbered_pool(ops, 4, first=100)
    ops.swap_blocks(device, host, torch.tensor([[5, 0], [6, 1], [2, 3]]))
    assert block_numbers(host) == [5, 6, 102, 2]
    assert block_numbers(device) == list(range(8))
    ops.swap_blocks(host, device, torch.tensor([[3, 7], [0, 0], [1, 1], [2, 6]]))
    assert block_numbers(device) == [5, 6, 2, 3, 4, 5, 102, 2]


def test_blocks_go_to_host_memory_and_come_back(ops: KernelOps) -> None:
    device = numbered_pool(ops, 8)
    host = ops.allocate_host(replace(device.shape, num_blocks=4), device.dtype)
    assert host.pool.device.type == "cpu"
    ops.swap_blocks(device, host, torch.tensor([[5, 0], [6, 1], [2, 3]]))
    device.pool.fill_(NAN)
    ops.swap_blocks(host, device, torch.tensor([[0, 7], [1, 0], [3, 1]]))
    assert device.pool[[7, 0, 1], 0, 0, 0, 0, 0].tolist() == [5, 6, 2]


# ---------------------------------------------------------------- refusals


def refused_write(ops: KernelOps, cache: KVCache, **changed: object) -> None:
    arguments = {
        "key": torch.zeros(2, 2, 64),
        "value": torch.zeros(2, 2, 64),
        "cache": cache,
        "layer": 0,
        "slot_mapping": torch.tensor([0, 1]),
    }
    ops.write_kv(**{**arguments, **changed})  # type: ignore[arg-type]


def refused_attention(ops: KernelOps, cache: KVCache, **changed: object) -> None:
    arguments = {
        "query": torch.zeros(2, 6, 64),
        "cache": cache,
        "layer": 0,
        "batch": AttentionBatch.from_lists([2], [20], [[0, 1]]),
        "scale": 1.0,
    }
    ops.paged_attention(**{**arguments, **changed})  # type: ignore[arg-type]


REFUSALS: list[tuple[Callable[[KernelOps, KVCache], None], str]] = [
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0, 48])), r"slot_mapping.* 48.*0\.\.47"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([-1, 0])), r"slot_mapping.* -1.*0\.\.47"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0, 1], dtype=torch.int32)), "slot_mapping.*int64"),
    (lambda o, c: refused_write(o, c, slot_mapping=torch.tensor([0])), r"slot_mapping.*\(1,\)"),
    (lambda o, c: refused_write(o, c, key=torch.zeros(2, 3, 64)), r"key.*\(2, 3, 64\)"),
    (lambda o, c: refused_write(o, c, value=torch.zeros(2, 2, 64).bfloat16()), "value.*bfloat16.*float32"),
    (lambda o, c: refused_write(o, c, value=torch.zeros(3, 2, 64)), "value has 3 tokens"),
    (lambda o, c: refused_write(o, c, key=torch.zeros(2, 64, 2).transpose(1, 2)), "key has strides"),
    (lambda o, c: refused_write(o, c, layer=2), r"layer is 2.*0\.\.1"),
    (lambda o, c: refused_attention(o, c, layer=-1), r"layer is -1.*0\.\.1"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(2, 3, 64)), "3 heads.*multiple of the 2"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(2, 6, 32)), r"query.*\(2, 6, 32\)"),
    (lambda o, c: refused_attention(o, c, query=torch.zeros(3, 6, 64)), "query_starts.* 2.* 3"),
    (
        lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [20], [[0, 3]])),
        r"block_tables\[0\].* 3.*0\.\.2",
    ),
    (lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [33], [[0, 1]])), "33.*32 tokens"),
    (lambda o, c: refused_attention(o, c, batch=AttentionBatch.from_lists([2], [1], [[0]])), "is 1.*2 new tokens"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [3, 2]])), r"source block.* 3.*0\.\.2"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [0, -1]])), r"destination block.* -1.*0\.\.2"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([[0, 1], [2, 1]])), "destination block 1 is written more than once"),
    (lambda o, c: o.copy_blocks(c, torch.tensor([0, 1])), r"pairs.*\[num_pairs, 2\]"),
    (lambda o, c: o.swap_blocks(c, c, torch.tensor([[0, 1]])), "same pool"),
    (lambda o, c: o.swap_blocks(c, o.allocate(make_shape(3, 8), c.dtype), torch.tensor([[0, 1]])), "a block of source"),
    (lambda o, c: o.swap_blocks(o.allocate(c.shape, torch.bfloat16), c, torch.tensor([[0, 1]])), "source holds"),
    (
        lambda o, c: o.swap_blocks(o.allocate(make_shape(9), c.dtype), c, torch.tensor([[0, 1], [8, 3]])),
        r"destination block.* 3.*0\.\.2",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_a_bad_argument_is_named_with_its_limit_and_nothing_is_written(
    ops: KernelOps, call: Callable[[KernelOps, KVCache], None], message: str
) -> None:
    cache = ops.allocate(make_shape(3), torch.float32)
    cache.pool.normal_()
    before = cache.pool.clone()
    with pytest.raises(KernelInputError, match=message):
        call(ops, cache)
    assert torch.equal(cache.pool, before)


# ---------------------------------------------------------------- the suite can fail


class FaultyOps:
    """Attention with a planted fault: the arguments are bent on their way in."""

    def __init__(self, ops: KernelOps, fault: Callable[[AttentionBatch, float], tuple[AttentionBatch, float]]) -> None:
        self._ops, self._fault = ops, fault

    def __getattr__(self, name: str) -> object:
        return getattr(self._ops, name)

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, scale: float
    ) -> torch.Tensor:
        return self._ops.paged_attention(query, cache, layer, *self._fault(batch, scale))


FAULTS = {
    "one token short": lambda b, s: (replace(b, context_lens=b.context_lens - 1), s),
    "one slot too far": lambda b, s: (replace(b, context_lens=b.context_lens + 1), s),
    "blocks exchanged": lambda b, s: (replace(b, block_tables=b.block_tables.flip(1).contiguous()), s),
    "scale a little off": lambda b, s: (b, s * 1.001),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(ops: KernelOps, fault: str) -> None:
    contexts = write_contexts(ops, [40])
    assert_attends(ops, contexts, [3])
    with pytest.raises(AssertionError):
        assert_attends(FaultyOps(ops, FAULTS[fault]), contexts, [3])  # type: ignore[arg-type]
