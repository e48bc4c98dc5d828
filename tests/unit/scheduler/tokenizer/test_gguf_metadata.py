import gguf
import pytest

from scheduler.adapters.gguf_metadata import read_gguf_metadata
from scheduler.errors import InvalidConfiguration


@pytest.fixture
def every_type(tmp_path):
    path = tmp_path / "types.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -1)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 1e300)
    writer.add_bool("yes", True)
    writer.add_string("text", "größe 🍋")
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, 0.25])
    writer.add_array("texts", ["", "a", "字"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def test_every_type_of_value_is_read_as_the_gguf_library_reads_it(every_type):
    ours = read_gguf_metadata(every_type)
    theirs = {key: field.contents() for key, field in gguf.GGUFReader(every_type).fields.items()}
    assert ours == {key: value for key, value in theirs.items() if not key.startswith("GGUF.")}
    assert ours["text"] == "größe 🍋"
    assert ours["u64"] == 2**64 - 1


@pytest.mark.parametrize("num_bytes", [0, 3, 10, 30, 100])
def test_a_file_that_ends_too_early_is_refused(every_type, num_bytes):
    every_type.write_bytes(every_type.read_bytes()[:num_bytes])
    with pytest.raises(InvalidConfiguration, match=r"types\.gguf"):
        read_gguf_metadata(every_type)


@pytest.mark.parametrize(
    ("offset", "content", "part"),
    [
        (0, b"GGML", "b'GGML'"),
        (4, b"\x01\0\0\0", "version 1"),
        (24, b"\xff" * 8, "runs past the end"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_what_is_wrong(every_type, offset, content, part):
    damaged = bytearray(every_type.read_bytes())
    damaged[offset : offset + len(content)] = content
    every_type.write_bytes(damaged)
    with pytest.raises(InvalidConfiguration, match=part):
        read_gguf_metadata(every_type)
