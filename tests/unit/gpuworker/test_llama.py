"""The model against `transformers`, from both file formats."""

from pathlib import Path

import numpy as np
import pytest
import torch

from doubles.tiny_llama import expected_config, naive_logits, random_llama, twin, write_gguf
from gpuworker.model.llama import Llama
from gpuworker.model.rotary import Rotary, rotate
from gpuworker.weights.gguf import GGUFSource, split_rotary_pairs
from gpuworker.weights.loading import open_weights

TOKEN_IDS = [(37 * index + 11) % 96 for index in range(50)]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def assert_same_logits(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for the rounding of float32 sums in another order."""
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-4)
    assert (actual - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"head_dim": 24},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
        {"rope_parameters": LLAMA3},
    ],
    ids=["grouped", "tied", "multi-head", "multi-query", "wide-heads", "theta", "linear", "llama3"],
)
def test_a_hugging_face_folder_gives_the_logits_of_transformers(tmp_path, logits_of, changes):
    model = random_llama(**changes)
    model.save_pretrained(tmp_path)
    assert_same_logits(logits_of(open_weights(tmp_path), TOKEN_IDS), naive_logits(model, TOKEN_IDS))


def test_a_sharded_folder_is_the_same_model(tmp_path, logits_of):
    model = random_llama()
    model.save_pretrained(tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_same_logits(logits_of(open_weights(tmp_path), TOKEN_IDS), naive_logits(model, TOKEN_IDS))


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_file_is_the_same_model(tmp_path, logits_of, tied):
    model = random_llama(tie_word_embeddings=tied)
    source = open_weights(write_gguf(model, tmp_path / "tiny.gguf"))
    assert source.config == expected_config(model)
    assert source.name == "Tiny"
    assert_same_logits(logits_of(source, TOKEN_IDS), naive_logits(model, TOKEN_IDS))


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_1"])
def test_a_quantized_gguf_file_computes_what_its_dequantized_tensors_say(tmp_path, logits_of, quantization):
    source = GGUFSource(write_gguf(random_llama(), tmp_path / "tiny.gguf", quantization))
    assert_same_logits(logits_of(source, TOKEN_IDS), naive_logits(twin(source), TOKEN_IDS))


def test_both_formats_give_one_configuration_and_the_same_tensors(tmp_path):
    model = random_llama()
    model.save_pretrained(tmp_path / "folder")
    folder = open_weights(tmp_path / "folder")
    file = open_weights(write_gguf(model, tmp_path / "tiny.gguf"))
    assert folder.config == file.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(folder.tensor(name), tensor), name
        assert torch.equal(file.tensor(name), tensor), name


@pytest.mark.parametrize("chunks", [(1,) * 50, (20, 30), (3, 4, 5, 38), (49, 1)])
def test_chunks_give_the_logits_of_the_whole(tmp_path, logits_of, chunks):
    source = open_weights(write_gguf(random_llama(), tmp_path / "tiny.gguf"))
    assert_same_logits(logits_of(source, TOKEN_IDS, *chunks), logits_of(source, TOKEN_IDS))


def test_bfloat16_stays_close_to_float32(tmp_path, logits_of):
    source = open_weights(write_gguf(random_llama(initializer_range=0.05), tmp_path / "tiny.gguf"))
    exact = logits_of(source, TOKEN_IDS)
    rounded = logits_of(source, TOKEN_IDS, dtype=torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - exact).norm() < 0.01 * exact.norm()


def test_a_tied_head_takes_no_memory_of_its_own(tmp_path):
    source = open_weights(write_gguf(random_llama(tie_word_embeddings=True), tmp_path / "tiny.gguf"))
    model = Llama(source, torch.float32, 16)
    assert model._lm_head.data_ptr() == model._embedding.data_ptr()


def test_splitting_rotary_pairs_undoes_what_converters_do():
    num_heads, head_size = 3, 8
    rows = np.arange(num_heads * head_size * 2, dtype=np.float32).reshape(num_heads * head_size, 2)
    converted = rows.reshape(num_heads, 2, head_size // 2, 2).swapaxes(1, 2).reshape(rows.shape)
    assert not np.array_equal(converted, rows)
    assert np.array_equal(split_rotary_pairs(converted, num_heads), rows)


def test_a_rotation_keeps_lengths_and_depends_on_the_distance_only(tmp_path: Path):
    config = expected_config(random_llama())
    rotary = Rotary(config, 64)
    query, key = torch.randn(2, 1, 1, config.head_size, generator=torch.Generator().manual_seed(0))

    def score(query_position: int, key_position: int) -> float:
        turned = [rotate(x, *rotary.at(torch.tensor([at]))) for x, at in ((query, query_position), (key, key_position))]
        torch.testing.assert_close(turned[0].norm(), query.norm())
        return (turned[0] * turned[1]).sum().item()

    assert score(9, 4) == pytest.approx(score(40, 35), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 8), abs=1e-2)
