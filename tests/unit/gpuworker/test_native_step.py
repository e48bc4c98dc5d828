"""The native step against the torch reference, and against itself in other batches: the latter bit for bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from doubles.native_step import Chunk, logits_of_all, native_executor, ragged, scattered
from doubles.tiny_llama import naive_logits, random_llama, twin, write_gguf
from gpuworker.core.steps import BlockChanges
from gpuworker.errors import KernelInputError, SettingsInvalid
from gpuworker.settings import Activations, Dtype, Weights
from gpuworker.weights.loading import open_weights

TOKEN_IDS = [(37 * index + 11) % 96 for index in range(50)]
NUMBERS = [
    (Dtype.FLOAT32, Activations.FLOAT),
    (Dtype.BFLOAT16, Activations.FLOAT),
    (Dtype.BFLOAT16, Activations.INT8),
]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def packed_source(tmp_path):
    """Quantized in the file's own blocks, with an embedding of as many tokens as a panel and a half."""
    return open_weights(write_gguf(random_llama(vocab_size=144), tmp_path / "tiny.gguf", "Q4_1"))


def relative_error(actual: np.ndarray, expected: torch.Tensor) -> float:
    return ((torch.from_numpy(actual) - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 32},
        {"vocab_size": 100, "intermediate_size": 104},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_parameters": LLAMA3},
    ],
    ids=["grouped", "tied", "multi-head", "multi-query", "wide-heads", "ragged", "theta", "linear", "llama3"],
)
def test_float32_logits_are_those_of_transformers(tmp_path, changes):
    model = random_llama(**changes)
    model.save_pretrained(tmp_path)
    actual = logits_of_all(native_executor(open_weights(tmp_path), num_threads=2), TOKEN_IDS)
    expected = naive_logits(model, TOKEN_IDS)
    torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-5, atol=1e-4)
    assert relative_error(actual, expected) < 2e-6


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_packed_weights_compute_what_their_dequantized_tensors_say(tmp_path, kind):
    source = open_weights(write_gguf(random_llama(), tmp_path / "tiny.gguf", kind))
    actual = logits_of_all(native_executor(source, weights=Weights.PACKED), TOKEN_IDS)
    assert relative_error(actual, naive_logits(twin(source), TOKEN_IDS)) < 2e-6


@pytest.mark.parametrize(
    ("weights", "dtype", "largest"),
    [
        (Weights.BFLOAT16, Dtype.BFLOAT16, 0.01),
        (Weights.FLOAT32, Dtype.BFLOAT16, 0.01),
        (Weights.Q8_0, Dtype.FLOAT32, 0.02),
        (Weights.Q8_0, Dtype.BFLOAT16, 0.02),
    ],
)
def test_rounded_weights_and_kv_stay_close_to_float32(tmp_path, weights, dtype, largest):
    model = random_llama(initializer_range=0.05)
    source = open_weights(write_gguf(model, tmp_path / "tiny.gguf"))
    actual = logits_of_all(native_executor(source, dtype, weights), TOKEN_IDS)
    assert 1e-5 < relative_error(actual, naive_logits(model, TOKEN_IDS)) < largest


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1"])
def test_activations_in_bytes_stay_close_to_floats(tmp_path, kind):
    source = open_weights(write_gguf(random_llama(initializer_range=0.05), tmp_path / "tiny.gguf", kind))
    actual = logits_of_all(native_executor(source, activations=Activations.INT8), TOKEN_IDS)
    assert 1e-5 < relative_error(actual, naive_logits(twin(source), TOKEN_IDS)) < 0.02


@pytest.mark.parametrize("weights", [Weights.FLOAT32, Weights.BFLOAT16])
def test_activations_in_bytes_are_refused_where_weights_are_not_quantized(packed_source, weights):
    with pytest.raises(SettingsInvalid, match=f"needs quantized weights; some are {weights}"):
        native_executor(packed_source, weights=weights, activations=Activations.INT8)


@pytest.mark.parametrize(("dtype", "activations"), NUMBERS)
@pytest.mark.parametrize("chunks", [(1,) * 50, (20, 30), (3, 4, 5, 38), (49, 1)])
def test_chunks_give_the_bits_of_the_whole(packed_source, dtype, activations, chunks):
    executor = native_executor(packed_source, dtype, activations=activations, num_threads=2)
    whole = logits_of_all(executor, TOKEN_IDS)
    assert np.array_equal(logits_of_all(executor, TOKEN_IDS, *chunks), whole)


@pytest.mark.parametrize(("dtype", "activations"), NUMBERS)
@pytest.mark.parametrize("batch_size", [2, 3, 4, 5, 8, 17, 31])
def test_a_batch_gives_the_bits_of_its_sequences_alone(packed_source, dtype, activations, batch_size):
    executor = native_executor(packed_source, dtype, activations=activations, num_threads=2)
    alone = native_executor(packed_source, dtype, activations=activations)
    prompts = [[(31 * index + 7 * row + 5) % 144 for index in range(3 + row)] for row in range(batch_size)]
    chunks = [Chunk(prompt, len(prompt), scattered(16 * row, 64)) for row, prompt in enumerate(prompts)]
    prefilled = executor.logits(ragged(chunks))
    assert np.array_equal(prefilled, np.concatenate([alone.logits(ragged([chunk])) for chunk in chunks]))
    decodes = [Chunk([*chunk.context, 17 + row], 1, chunk.table) for row, chunk in enumerate(chunks)]
    decoded = executor.logits(ragged(decodes))
    assert np.array_equal(decoded, np.concatenate([alone.logits(ragged([chunk])) for chunk in decodes]))
    assert len(np.unique(decoded, axis=0)) == batch_size


@pytest.mark.parametrize(("dtype", "activations"), NUMBERS)
def test_the_number_of_threads_changes_no_bit(packed_source, dtype, activations):
    alone = native_executor(packed_source, dtype, activations=activations)
    expected = logits_of_all(alone, TOKEN_IDS, 45, 1, 4)
    for num_threads in (2, 3, 7):
        executor = native_executor(packed_source, dtype, activations=activations, num_threads=num_threads)
        assert np.array_equal(logits_of_all(executor, TOKEN_IDS, 45, 1, 4), expected), num_threads


def test_blocks_that_were_swapped_out_and_in_again_change_no_bit(packed_source):
    executor = native_executor(packed_source, Dtype.BFLOAT16)
    table = scattered(32, 50)
    executor.logits(ragged([Chunk(TOKEN_IDS[:49], 49, table)]))
    expected = executor.logits(ragged([Chunk(TOKEN_IDS, 1, table)]))
    moved = [*range(100, 100 + len(table))]
    out = [block for pair in zip(table, range(len(table)), strict=True) for block in pair]
    back = [block for pair in zip(range(len(table)), moved, strict=True) for block in pair]
    executor.move(BlockChanges(swap_outs=out, swap_ins=back))
    assert np.array_equal(executor.logits(ragged([Chunk(TOKEN_IDS, 1, moved)])), expected)
    copied = [*range(200, 200 + len(table))]
    executor.move(BlockChanges(copies=[block for pair in zip(moved, copied, strict=True) for block in pair]))
    assert np.array_equal(executor.logits(ragged([Chunk(TOKEN_IDS, 1, copied)])), expected)


@pytest.mark.parametrize("activations", [Activations.FLOAT, Activations.INT8])
def test_what_is_not_finite_stays_in_its_own_sequence(packed_source, activations):
    executor = native_executor(packed_source, activations=activations)
    chunks = [Chunk(TOKEN_IDS[: 5 + row], 5 + row, scattered(16 * row, 64)) for row in range(3)]
    executor.logits(ragged(chunks))
    decodes = [Chunk([*chunk.context, 9], 1, chunk.table) for chunk in chunks]
    expected = executor.logits(ragged(decodes))
    pool = np.frombuffer(executor._device_pool.memory, np.float32).reshape(512, -1)
    for block in set(range(512)) - {block for chunk in chunks for block in chunk.table[:3]}:
        pool[block] = np.nan  # of nobody
    pool[chunks[1].table[0]] = np.nan
    actual = executor.logits(ragged(decodes))
    assert np.isnan(actual[1]).any()
    assert np.array_equal(actual[[0, 2]], expected[[0, 2]])


def test_greedy_tokens_are_those_of_transformers(tmp_path):
    model = random_llama()
    executor = native_executor(open_weights(write_gguf(model, tmp_path / "tiny.gguf")), num_threads=2)
    prompts = [TOKEN_IDS[:length] for length in (1, 7, 20)]
    outputs = [list(prompt) for prompt in prompts]
    pending = [len(prompt) for prompt in prompts]
    for _ in range(30):
        chunks = [
            Chunk(output, count, scattered(16 * row, 64))
            for row, (output, count) in enumerate(zip(outputs, pending, strict=True))
        ]
        for output, row in zip(outputs, executor.logits(ragged(chunks)), strict=True):
            output.append(int(row.argmax()))
        pending = [1] * len(prompts)
    for prompt, output in zip(prompts, outputs, strict=True):
        expected = naive_logits(model, output[:-1], num_last=30).argmax(dim=-1)
        assert output[len(prompt) :] == expected.tolist()


def test_phases_add_up_to_the_step_and_name_where_time_went(packed_source):
    executor = native_executor(packed_source)
    logits_of_all(executor, TOKEN_IDS)
    phases = executor.phase_ns()
    assert all(phases[name] > 0 for name in ("norms", "qkv", "attention", "output", "gate_up", "down", "logits"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": [144]}, r"token_ids\[0\] is 144, must be in 0..143"),
        ({"positions": [128]}, r"positions\[0\] is 128, must be in 0..127"),
        ({"slot_mapping": [2048]}, r"slot_mapping\[0\] is 2048, must be in 0..2047"),
        ({"sample_rows": [1]}, r"logit_rows\[0\] is 1, must be in 0..0"),
        ({"context_lens": [0]}, r"context_lens\[0\] is 0"),
    ],
)
def test_a_batch_that_does_not_fit_the_model_is_refused_by_field_value_and_limit(packed_source, change, message):
    executor = native_executor(packed_source)
    with pytest.raises(KernelInputError, match=message):
        executor.logits(replace(ragged([Chunk([5], 1, [3])]), **change))


def test_a_model_that_the_library_cannot_compute_is_refused_by_field(tmp_path):
    random_llama(head_dim=24).save_pretrained(tmp_path)
    with pytest.raises(KernelInputError, match="head_size is 24, must be a multiple of 16"):
        native_executor(open_weights(tmp_path))
