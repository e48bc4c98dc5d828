"""Formats of weights, and the file in which packed ones wait for the next start."""

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from doubles.native_step import logits_of_all, native_executor
from doubles.tiny_llama import random_llama, write_gguf
from gpuworker.errors import KernelInputError, ModelUnreadable
from gpuworker.library import CacheStruct
from gpuworker.native import packed_file, structs
from gpuworker.native.formats import WeightFormat, choose_weights, format_of, to_float32, to_format
from gpuworker.native.layout import lay_out
from gpuworker.native.library import StepLibrary
from gpuworker.native.packing import load_packed
from gpuworker.row_structs import SampleParams
from gpuworker.settings import Dtype, Weights
from gpuworker.weights.loading import content_digest, open_weights
from gpuworker.weights.source import StoredRows

INCLUDE = Path(__file__).parents[3] / "csrc" / "include"
FLOATS = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


@pytest.fixture(scope="module")
def library() -> StepLibrary:
    return StepLibrary()


@pytest.fixture
def model(tmp_path) -> Path:
    return write_gguf(random_llama(), tmp_path / "tiny.gguf", "Q4_1")


def load(model: Path, library: StepLibrary, weights: Weights = Weights.AUTO) -> packed_file.PackedWeights:
    return load_packed(open_weights(model), weights, Dtype.BFLOAT16, library)


def test_auto_is_packed_for_a_quantized_file_and_else_the_dtype():
    assert choose_weights(Weights.AUTO, {"F32", "Q4_1"}, Dtype.BFLOAT16) is Weights.PACKED
    assert choose_weights(Weights.AUTO, {"F32", "F16"}, Dtype.BFLOAT16) is Weights.BFLOAT16
    assert choose_weights(Weights.AUTO, {"BF16"}, Dtype.FLOAT32) is Weights.FLOAT32
    assert choose_weights(Weights.Q8_0, {"Q4_1"}, Dtype.FLOAT32) is Weights.Q8_0


def test_packed_keeps_the_file_s_own_blocks_and_the_rest_in_the_dtype():
    for kind in ("Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q6_K", "BF16"):
        assert format_of(kind, Weights.PACKED, Dtype.FLOAT32).name == {"BF16": "BFLOAT16"}.get(kind, kind)
    assert format_of("F32", Weights.PACKED, Dtype.BFLOAT16) is WeightFormat.FLOAT32
    assert format_of("F16", Weights.PACKED, Dtype.BFLOAT16) is WeightFormat.BFLOAT16
    assert format_of("Q5_1", Weights.PACKED, Dtype.FLOAT32) is WeightFormat.FLOAT32
    assert format_of("Q4_1", Weights.BFLOAT16, Dtype.FLOAT32) is WeightFormat.BFLOAT16


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_1"])
def test_conversions_round_as_torch_and_gguf_do(kind):
    stored = StoredRows(kind, gguf.quantize(FLOATS, gguf.GGMLQuantizationType[kind]), 64)
    values = gguf.dequantize(stored.rows, gguf.GGMLQuantizationType[kind])
    assert np.array_equal(to_float32(kind, stored.rows), values)
    rounded = torch.from_numpy(values).bfloat16().view(torch.int16).numpy()
    assert np.array_equal(to_format(stored, WeightFormat.BFLOAT16).view(np.int16), rounded)
    quantized = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(to_format(stored, WeightFormat.Q8_0), quantized)


def test_rows_that_are_no_whole_blocks_and_unknown_types_are_refused():
    with pytest.raises(ModelUnreadable, match="rows of 40 weights cannot be kept as q8_0, whose blocks are 32"):
        to_format(StoredRows("F32", FLOATS[:, :40].copy().view(np.uint8), 40), WeightFormat.Q8_0)
    with pytest.raises(ModelUnreadable, match="weights of type I32 cannot be dequantized"):
        to_float32("I32", FLOATS.view(np.uint8))


def test_a_matrix_that_cannot_be_packed_is_refused_with_its_sizes(library):
    with pytest.raises(KernelInputError, match="8 x 40 cannot be packed as q4_1: its rows must be multiples of 32"):
        library.packed_bytes(WeightFormat.Q4_1, 8, 40)


def test_the_second_start_maps_what_the_first_one_packed(model, cache, library, monkeypatch):
    first = load(model, library)
    (path,) = cache.iterdir()
    assert path.name.startswith("tiny-")
    monkeypatch.setattr(StepLibrary, "pack", lambda *_: pytest.fail("packed again"), raising=True)
    monkeypatch.setattr("gpuworker.native.packing._probe", lambda *_: b"")
    with pytest.raises(pytest.fail.Exception):
        load(model, library)  # another version of the library packs differently
    monkeypatch.undo()
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(cache.parent))
    written = path.stat().st_ino
    again = load(model, library)
    assert path.stat().st_ino == written
    assert again.places == first.places
    assert np.array_equal(again.content, first.content)
    assert again.content_digest == content_digest(open_weights(model))


def damage_header(content: bytearray) -> None:
    content[100] ^= 1


def cut_short(content: bytearray) -> None:
    del content[-4096:]


def empty(content: bytearray) -> None:
    content.clear()


def of_another_version(content: bytearray) -> None:
    content[:8] = b"OCTPACK0"


def damage_a_weight(content: bytearray) -> None:
    content[-5000] ^= 1


def damage_the_end(content: bytearray) -> None:
    content[-1] ^= 1


@pytest.mark.parametrize(
    "damage", [damage_header, damage_a_weight, damage_the_end, cut_short, empty, of_another_version]
)
def test_a_damaged_file_is_made_anew(model, cache, library, damage):
    expected = load(model, library).content.copy()
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    content = bytearray(whole)
    damage(content)
    path.write_bytes(content)
    assert np.array_equal(load(model, library).content, expected)
    assert path.read_bytes() == whole


def test_other_weights_in_the_same_place_are_packed_anew(model, cache, library):
    before = load(model, library)
    write_gguf(random_llama(initializer_range=0.3), model, "Q4_1")
    after = load(model, library)
    assert after.content_digest != before.content_digest
    assert not np.array_equal(after.content, before.content)
    assert len(list(cache.iterdir())) == 2


def test_a_file_under_the_name_of_another_key_is_not_used(model, cache, library):
    load(model, library, Weights.FLOAT32)
    (other,) = cache.iterdir()
    load(model, library)
    (path,) = set(cache.iterdir()) - {other}
    path.write_bytes(other.read_bytes())
    places = load(model, library).places
    assert {place.weight_format for place in places} == {None, WeightFormat.Q4_1}


def test_the_least_recently_used_files_beyond_eight_go(model, cache, library):
    cache.mkdir(parents=True)
    for age in range(10):
        old = cache / f"old-{age}.packed"
        old.touch()
        os.utime(old, (1e9 - age, 1e9 - age))
    load(model, library)
    assert sorted(path.name for path in cache.glob("old-*")) == [f"old-{age}.packed" for age in range(7)]


def test_what_a_killed_process_left_unfinished_goes_after_a_day(model, cache, library):
    for name, age_s in ((".packing-abandoned", 90_000), (".packing-in-progress", 60)):
        folder = cache / name
        folder.mkdir(parents=True)
        (folder / "tiny.packed").touch()
        os.utime(folder, (time.time() - age_s,) * 2)
    load(model, library)
    assert [path.name for path in cache.glob(".packing-*")] == [".packing-in-progress"]


def test_where_nothing_can_be_kept_weights_are_packed_into_memory(model, cache, library, caplog):
    expected = load(model, library).content.copy()
    (path,) = cache.iterdir()
    path.unlink()
    cache.rmdir()
    cache.touch()  # a file where the folder should be
    packed = load(model, library)
    assert np.array_equal(packed.content[: len(expected)], expected)
    assert packed.content.ctypes.data % 64 == 0
    assert "packed weights are not kept for the next start" in caplog.text


def test_a_tied_head_takes_no_memory_of_its_own(tmp_path, library):
    tied = open_weights(write_gguf(random_llama(tie_word_embeddings=True), tmp_path / "tied.gguf"))
    names = [place.name for place in lay_out(tied, Weights.AUTO, Dtype.FLOAT32, library)]
    assert len(names) == len(set(names))
    assert "lm_head.weight" not in names
    assert logits_of_all(native_executor(tied), [1, 2, 3]).shape == (3, 96)


def test_weights_that_were_mapped_compute_the_same_bits(model):
    first = logits_of_all(native_executor(open_weights(model)), [1, 2, 3])
    assert np.array_equal(logits_of_all(native_executor(open_weights(model)), [1, 2, 3]), first)


@pytest.mark.parametrize(
    ("header", "struct", "name"),
    [
        ("octavo_product.h", structs.MatrixStruct, "octavo_matrix"),
        ("octavo_product.h", structs.PackParams, "octavo_pack_params"),
        ("octavo_step.h", structs.LayerStruct, "octavo_layer"),
        ("octavo_step.h", structs.ModelParams, "octavo_model_params"),
        ("octavo_step.h", structs.StepParams, "octavo_step_params"),
    ],
)
def test_structs_have_the_fields_of_the_header_in_its_order(header, struct, name):
    declared = re.search(rf"typedef struct {name} {{(.*?)}} {name};", (INCLUDE / header).read_text(), re.DOTALL)
    assert declared is not None
    kinds = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "float": ctypes.c_float}
    kinds |= {"octavo_cache": CacheStruct, "octavo_matrix": structs.MatrixStruct, "octavo_sample_params": SampleParams}
    fields = re.findall(r"^\s+(?:const )?(\w+) (\*?)(\w+);", declared.group(1), re.MULTILINE)
    assert [(field, ctypes.c_void_p if star else kinds[kind]) for kind, star, field in fields] == list(struct._fields_)


def test_phases_have_the_names_and_the_order_of_the_header():
    names = re.findall(r"OCTAVO_PHASE_(\w+) = (\d+)", (INCLUDE / "octavo_step.h").read_text())
    assert [(name.lower(), int(value)) for name, value in names] == [(n, i) for i, n in enumerate(structs.PHASES)]


def test_formats_have_the_numbers_of_the_header():
    names = re.findall(r"OCTAVO_WEIGHT_(\w+) = (\d+)", (INCLUDE / "octavo_product.h").read_text())
    assert dict(names) == {weight_format.name: str(weight_format.value) for weight_format in WeightFormat}


def test_a_worker_with_the_native_step_never_imports_torch(model, tmp_path):
    program = (
        "import sys; from pathlib import Path; import gpuworker.main\n"
        "from gpuworker.assembly import assemble; from gpuworker.settings import Settings\n"
        f"engine = assemble(Settings(listen='-', model=Path({str(model)!r}), worker_id='w', num_device_blocks=2))\n"
        "print(engine.identity.kernel_backend, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"cpu\[\w+, native, q4_1, \w+ products\] False", done.stdout.strip())
