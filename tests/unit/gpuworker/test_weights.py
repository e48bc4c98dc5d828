"""Files that cannot be served are refused by file, field and value."""

import json
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from doubles.tiny_llama import random_llama, write_gguf
from gpuworker.errors import ModelUnreadable
from gpuworker.weights.gguf_file import GGUFFile
from gpuworker.weights.loading import content_digest, fingerprint, open_weights
from gpuworker.weights.source import tensor_shapes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random_llama().save_pretrained(tmp_path / "folder")
    return tmp_path / "folder"


def change_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in {**values, **changes}.items() if value != "absent"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, r"config.json: field model_type is 'mamba'; supported: 'llama'"),
        ({"hidden_act": "gelu"}, "field hidden_act is 'gelu'; supported: 'silu'"),
        ({"attention_bias": True}, "field attention_bias is True; supported: False"),
        ({"hidden_size": "absent"}, "field hidden_size is missing; a whole number of at least 1"),
        ({"num_hidden_layers": 0}, "field num_hidden_layers is 0"),
        ({"num_hidden_layers": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"num_hidden_layers": 1}, "tensor model.layers.1.input_layernorm.weight belongs to no architecture"),
        ({"vocab_size": 97}, r"tensor model.embed_tokens.weight has shape \(96, 64\), but \(97, 64\) was expected"),
        ({"num_key_value_heads": 3}, "num_kv_heads is 3, but must divide num_heads, 4"),
        ({"rms_norm_eps": -1}, "field rms_norm_eps is -1; a positive number"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "field rope_type is 'yarn'; supported: default"),
        ({"rope_parameters": {"rope_type": "linear"}}, "field factor is missing"),
    ],
)
def test_a_configuration_that_is_not_supported_is_refused(folder, changes, message):
    change_config(folder, **changes)
    with pytest.raises(ModelUnreadable, match=message):
        open_weights(folder)


def test_the_configuration_of_transformers_4_is_read_too(folder):
    new = open_weights(folder).config
    change_config(folder, rope_parameters="absent", rope_theta=10000.0, rope_scaling=None, head_dim="absent")
    assert open_weights(folder).config == new
    change_config(folder, rope_scaling={"type": "linear", "factor": 2.0})
    assert open_weights(folder).config.rope_divisors == (2.0,) * 8


def test_old_rotary_buffers_are_skipped_and_biases_are_not(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, path)
    open_weights(folder)
    save_file({**tensors, "model.layers.0.self_attn.q_proj.bias": torch.ones(64)}, path)
    with pytest.raises(ModelUnreadable, match=r"tensor model.layers.0.self_attn.q_proj.bias belongs to no"):
        open_weights(folder)


def test_weights_of_whole_numbers_are_refused_when_they_are_read(folder):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "model.norm.weight": torch.ones(64, dtype=torch.int32)}, path)
    with pytest.raises(ModelUnreadable, match=r"tensor model.norm.weight is I32"):
        open_weights(folder).tensor("model.norm.weight")


def test_a_damaged_or_absent_folder_says_which_file(folder, tmp_path):
    (folder / "model.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelUnreadable, match=r"model.safetensors: cannot be read"):
        open_weights(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelUnreadable, match=r"neither model\.safetensors nor"):
        open_weights(folder)
    (folder / "config.json").write_text("[]")
    with pytest.raises(ModelUnreadable, match=r"config.json: the file holds list"):
        open_weights(folder)
    with pytest.raises(ModelUnreadable, match="there is no such file or folder"):
        open_weights(tmp_path / "absent")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"general.architecture": "mamba"}, "field general.architecture is 'mamba'; supported: llama"),
        (
            {"llama.attention.head_count": 5},
            "num_kv_heads is 2, but must divide num_heads, 5|rope.dimension_count is 16",
        ),
        ({"llama.rope.dimension_count": 8}, "field llama.rope.dimension_count is 8; it must equal the head size, 16"),
        ({"llama.block_count": 3}, "tensor model.layers.2.input_layernorm.weight is missing"),
        ({"llama.context_length": "long"}, "field llama.context_length is 'long'; a number"),
        ({"llama.context_length": 0}, "field llama.context_length is 0; a whole number of at least 1"),
        ({"llama.expert_count": 8}, "field llama.expert_count is 8"),
        ({"llama.rope.scaling.type": "yarn"}, "field llama.rope.scaling.type is 'yarn'; supported: none, linear"),
    ],
)
def test_a_gguf_file_that_is_not_supported_is_refused(tmp_path, monkeypatch, fields, message):
    path = write_gguf(random_llama(), tmp_path / "tiny.gguf")
    opened = GGUFFile(path)
    opened.fields.update(fields)
    monkeypatch.setattr("gpuworker.weights.gguf.GGUFFile", lambda _: opened)
    with pytest.raises(ModelUnreadable, match=message):
        open_weights(path)


def test_a_linear_rotary_scaling_is_read_from_its_field(tmp_path):
    fields = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    path = write_gguf(random_llama(), tmp_path / "tiny.gguf", fields=fields)
    assert open_weights(path).config.rope_divisors == (4.0,) * 8


def test_a_damaged_gguf_file_says_where(tmp_path):
    path = write_gguf(random_llama(), tmp_path / "tiny.gguf")
    whole = path.read_bytes()
    for content, message in (
        (b"", "cannot be opened"),
        (b"GGML" + whole[4:], "the first bytes are b'GGML'"),
        (b"GGUF" + struct.pack("<I", 9) + whole[8:], "version is 9"),
        (whole[:30], "ends inside its header|goes past the end"),
        (whole[:-4096], "ends at byte"),
        (whole.replace(struct.pack("<Q", 7) + b"token 0", b"\xff" * 15), "ends inside its header"),
    ):
        path.write_bytes(content)
        with pytest.raises(ModelUnreadable, match=message):
            open_weights(path)


def test_a_fingerprint_names_weights_and_type(tmp_path):
    path = write_gguf(random_llama(), tmp_path / "tiny.gguf")
    same = write_gguf(random_llama(), tmp_path / "same.gguf")
    other = write_gguf(random_llama(initializer_range=0.3), tmp_path / "other.gguf")
    name = named(path, "float32")
    assert len(name) == 32
    assert name == named(same, "float32")
    assert name != named(other, "float32")
    assert name != named(path, "bfloat16")
    assert name != named(path, "float32", "packed")
    assert named(path, "float32", "packed") != named(path, "float32packed")


def named(path: Path, *arithmetic: str) -> bytes:
    source = open_weights(path)
    return fingerprint(source, content_digest(source), *arithmetic)


@pytest.mark.parametrize("quantization", ["F32", "F16", "BF16", "Q4_1", "Q8_0"])
def test_stored_rows_are_the_file_s_own_in_the_order_of_the_tensor(tmp_path, quantization):
    source = open_weights(write_gguf(random_llama(), tmp_path / "tiny.gguf", quantization))
    for name, shape in tensor_shapes(source.config):
        stored = source.stored(name)
        expected = quantization if len(shape) == 2 else "F32"
        assert (stored.kind, stored.num_inputs) == (expected, shape[-1])
        values = gguf.dequantize(stored.rows, gguf.GGMLQuantizationType[stored.kind])
        assert np.array_equal(values.reshape(shape), source.tensor(name).numpy()), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_rows_of_a_folder_are_its_tensors(tmp_path, dtype):
    random_llama().to(dtype).save_pretrained(tmp_path / "folder")
    source = open_weights(tmp_path / "folder")
    kinds = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
    for name, shape in tensor_shapes(source.config):
        stored, tensor = source.stored(name), source.tensor(name)
        assert stored.kind == kinds[dtype]
        assert stored.num_inputs == shape[-1]
        assert stored.rows.tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes(), name
