"""What is decided about a step before a device sees it: its place in memory, its graph, its padding, its moves."""

import ctypes
import math
from array import array
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from doubles.emulated_cuda import EmulatedDevice
from gpuworker.core.batch import Batch
from gpuworker.core.steps import NO_TOKEN, BlockChanges, Sample, SamplingParams
from gpuworker.device.decode_graphs import MOST_CONTEXT_TOKENS, NUM_SEQS, DecodeGraphs, GraphShape
from gpuworker.device.staging import Extents, StagedStep, Staging, extents_of
from gpuworker.executor import move_blocks
from gpuworker.kernels.cuda import most_thread_blocks
from gpuworker.logprobs import read_scores, score_table, scores
from gpuworker.model.llama import ModelInput
from gpuworker.row_structs import ROW_BYTES, SamplingRow
from gpuworker.sampling_rows import pack

SHAPE = GraphShape(block_size=4, max_blocks=3, padding_block=50, sizes=(1, 2, 4, 8))


def decode(num_seqs: int, context_len: int = 6) -> Batch:
    """Sequence s decodes token 10 + s; its table is 2 s, 2 s + 1."""
    rows = range(num_seqs)
    return Batch(
        token_ids=[10 + row for row in rows],
        positions=[context_len - 1] * num_seqs,
        slot_mapping=[8 * row + 5 for row in rows],
        query_starts=range(num_seqs + 1),
        context_lens=[context_len] * num_seqs,
        block_tables=[array("i", [2 * row, 2 * row + 1]) for row in rows],
        sample_rows=rows,
        logit_rows=rows,
        samples=[Sample(row, context_len, SamplingParams(seed=row)) for row in rows],
    )


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize(("num_seqs", "expected"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, None)])
def test_a_decode_takes_the_smallest_graph_that_holds_it(num_seqs: int, expected: int | None) -> None:
    assert SHAPE.num_seqs_for(decode(num_seqs)) == expected


def test_at_most_a_third_of_a_graph_is_padding() -> None:
    assert list(NUM_SEQS) == sorted(NUM_SEQS)
    assert all((larger - smaller - 1) * 3 <= larger for smaller, larger in pairwise(NUM_SEQS))


@pytest.mark.parametrize(
    "change",
    [
        {"context_lens": [6, 13]},
        {"token_ids": [1, 2, 3], "query_starts": [0, 1, 3]},
        {"sample_rows": [0]},
        {"samples": [Sample(0, 6, SamplingParams())] * 3},
        {"scored_token_ids": [4]},
    ],
    ids=["context too long", "two tokens of a sequence", "no sample", "two choices", "scored"],
)
def test_what_is_no_plain_decode_has_no_graph(change: dict[str, object]) -> None:
    assert SHAPE.num_seqs_for(replace(decode(2), **change)) is None


def test_tables_of_graphs_are_as_wide_as_the_longest_sequence_and_not_wider_than_the_limit() -> None:
    assert GraphShape.of(max_model_len=100, block_size=16, padding_block=0).max_blocks == 7
    assert GraphShape.of(max_model_len=10**6, block_size=16, padding_block=0).max_blocks == MOST_CONTEXT_TOKENS // 16


def test_padding_rows_touch_no_block_but_the_padding_block() -> None:
    batch = decode(3)
    padded = SHAPE.pad(batch, 8)
    for column in ("token_ids", "positions", "slot_mapping", "context_lens", "block_tables"):
        assert list(getattr(padded, column))[:3] == list(getattr(batch, column))
        assert len(getattr(padded, column)) == 8
    assert [slot // SHAPE.block_size for slot in padded.slot_mapping[3:]] == [SHAPE.padding_block] * 5
    assert padded.block_tables[3:] == [array("i", [SHAPE.padding_block])] * 5
    assert padded.context_lens[3:] == [1] * 5
    assert list(padded.query_starts) == list(range(9))
    assert padded.samples == batch.samples


def test_a_graph_is_recorded_once_and_replayed_on_new_input() -> None:
    seen: list[ModelInput] = []

    def forward(model_input: ModelInput) -> torch.Tensor:
        seen.append(model_input)
        return model_input.token_ids.float().unsqueeze(1).expand(-1, 7)

    graphs = DecodeGraphs(forward, EmulatedDevice(), SHAPE)
    recorded = len(seen)
    for num_seqs in (3, 5, 1):
        result = graphs.run(decode(num_seqs))
        assert result is not None
        assert result[1][:, 0].tolist() == [10.0 + row for row in range(num_seqs)]
    assert len({model_input.token_ids.data_ptr() for model_input in seen}) == 1
    assert len(seen) == recorded + 3
    assert graphs.run(decode(9)) is None


# ---------------------------------------------------------------- staging


def test_columns_are_aligned_and_do_not_overlap() -> None:
    extents = Extents(num_tokens=5, num_rows=3, num_seqs=3, max_blocks=7, num_samples=2, num_scored=1)
    assert all(start % 16 == 0 for start in extents.starts)
    for (start, end), (dtype, shape) in zip(pairwise(extents.starts), extents.columns, strict=True):
        assert 0 <= end - start - dtype.itemsize * math.prod(shape) < 16


def test_what_a_graph_reads_lies_where_it_did_whatever_is_sampled() -> None:
    few, many = SHAPE.extents(4, num_samples=1), SHAPE.extents(4, num_samples=4)
    assert few.starts[:8] == many.starts[:8]


def test_a_step_arrives_as_it_was_sent() -> None:
    batch = replace(decode(3), scored_token_ids=[9, 8], block_tables=[array("i", t) for t in ([1], [2, 3, 4], [])])
    staged = Staging(EmulatedDevice(), 16).send(batch, extents_of(batch))
    assert staged.model_input.token_ids.tolist() == batch.token_ids
    assert staged.model_input.positions.tolist() == batch.positions
    assert staged.model_input.slot_mapping.tolist() == batch.slot_mapping
    assert staged.model_input.sample_rows.tolist() == [0, 1, 2]
    assert staged.model_input.attention.query_starts.tolist() == [0, 1, 2, 3]
    assert staged.model_input.attention.context_lens.tolist() == [6, 6, 6]
    assert staged.model_input.attention.block_tables.tolist() == [[1, 0, 0], [2, 3, 4], [0, 0, 0]]
    assert staged.logit_rows.tolist() == [0, 1, 2]
    assert staged.scored_token_ids.tolist() == [9, 8]
    assert staged.sampling.tolist() == pack(batch.samples).tolist()


def test_a_table_longer_than_the_row_of_a_graph_is_cut_to_what_the_context_needs() -> None:
    batch = replace(decode(1), block_tables=[array("i", [5, 6, 7, 8])])
    extents = replace(extents_of(batch), max_blocks=2)
    staged = StagedStep.over(torch.zeros(extents.num_bytes, dtype=torch.uint8), extents)
    staged.fill(batch)
    assert staged.model_input.attention.block_tables.tolist() == [[5, 6]]


def test_sampling_rows_hold_what_the_kernel_reads() -> None:
    params = SamplingParams(temperature=0.5, top_p=0.25, top_k=7, seed=2**64 - 1, choice_index=3, min_p=0.5)
    rows = pack([Sample(1, 2**31, params), Sample(2, 4, SamplingParams())])
    assert rows.shape == (2, ROW_BYTES)
    first, second = (SamplingRow.from_buffer_copy(row.tobytes()) for row in rows)
    assert (first.temperature, first.top_p, first.top_k, first.seed) == (0.5, 0.25, 7, 2**64 - 1)
    assert (first.choice_index, first.position) == (3, 2**31)
    assert first.log_min_p == pytest.approx(math.log(0.5))
    assert (second.temperature, second.log_min_p, second.repetition_penalty) == (0.0, -math.inf, 1.0)
    assert ctypes.sizeof(SamplingRow) == ROW_BYTES


def test_a_top_k_beyond_the_kernels_numbers_keeps_all_tokens() -> None:
    [row] = pack([Sample(1, 0, SamplingParams(top_k=2**32 - 1))])
    assert SamplingRow.from_buffer_copy(row.tobytes()).top_k == 2**31 - 1


# ---------------------------------------------------------------- results and moves


def test_a_table_of_scores_tells_what_scores_tells() -> None:
    logits = torch.randn(70, 30, generator=torch.Generator().manual_seed(3))
    token_ids = [(5 * row) % 30 for row in range(69)] + [NO_TOKEN]
    num_top = [row % 4 for row in range(70)]
    expected = scores(logits, token_ids, num_top)
    table = score_table(logits, torch.tensor(token_ids), max(num_top)).numpy()
    actual = read_scores(table, token_ids, num_top)
    assert actual.logprobs == pytest.approx(expected.logprobs)
    assert list(actual.top_token_ids) == list(expected.top_token_ids)
    assert actual.top_logprobs == pytest.approx(expected.top_logprobs)
    assert read_scores(table[:, :1], token_ids, [0] * 70).num_top == ()


class MovesNoted:
    """Notes what is moved between pools that are only names."""

    def __init__(self) -> None:
        self.moves: list[tuple[object, ...]] = []

    def swap_blocks(self, source: object, destination: object, pairs: torch.Tensor) -> None:
        self.moves.append((source, destination, pairs.tolist()))

    def copy_blocks(self, cache: object, pairs: torch.Tensor) -> None:
        self.moves.append((cache, cache, pairs.tolist()))


def test_blocks_leave_before_others_come_and_are_copied_last() -> None:
    ops = MovesNoted()
    changes = BlockChanges(copies=(5, 6), swap_ins=(0, 2, 1, 3), swap_outs=(2, 7))
    move_blocks(changes, ops, "device", "host")  # type: ignore[arg-type]
    assert ops.moves == [
        ("device", "host", [[2, 7]]),
        ("host", "device", [[0, 2], [1, 3]]),
        ("device", "device", [[5, 6]]),
    ]


def test_thread_blocks_of_attention_grow_with_sequences_heads_and_tiles_of_rows() -> None:
    assert most_thread_blocks(num_tokens=1, num_heads=9, num_kv_heads=3, num_seqs=1) == 3
    assert most_thread_blocks(num_tokens=64, num_heads=9, num_kv_heads=3, num_seqs=64) == (64 * 3 // 16 + 64) * 3
