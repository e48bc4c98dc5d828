"""Small vocabularies, written as real model files."""

from pathlib import Path

import gguf
import pytest

CONTROL, USER_DEFINED, BYTE = gguf.TokenType.CONTROL, gguf.TokenType.USER_DEFINED, gguf.TokenType.BYTE
NORMAL, UNKNOWN = gguf.TokenType.NORMAL, gguf.TokenType.UNKNOWN


@pytest.fixture
def write_gguf(tmp_path):
    """Writes a GGUF file that has metadata and one tensor; keyword arguments overwrite or, if None, drop a key."""

    def write(**changes) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        for key, value in changes.items():
            add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
            if value is not None:
                add[type(value)](f"tokenizer.ggml.{key}", value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def byte_level(write_gguf):
    """A byte-level vocabulary: 256 bytes, a few merges, two special tokens and one of the user's."""
    letters = byte_letters()
    merges = ["Ġ a", "h e", "l l", "he ll", "hell o", "1 2", "Ġ Ġ"]
    specials = ["<|begin|>", "<|end|>", "<|turn|>", "<think>"]
    tokens = [*letters, *("".join(merge.split()) for merge in merges), *specials]

    def write(**changes) -> Path:
        types = [NORMAL] * (len(tokens) - 4) + [CONTROL] * 3 + [USER_DEFINED]
        described = {
            "model": "gpt2",
            "pre": "smollm",
            "tokens": tokens,
            "token_type": types,
            "merges": merges,
            "bos_token_id": tokens.index("<|begin|>"),
            "eos_token_id": tokens.index("<|end|>"),
        }
        return write_gguf(**(described | changes))

    write.tokens = tokens
    return write


@pytest.fixture
def sentencepiece(write_gguf):
    """A SentencePiece vocabulary with byte fallback; the scores say which pair is merged first."""
    pieces = {"▁": -20.0, "h": -21.0, "e": -22.0, "l": -23.0, "o": -24.0, "ll": -1.0, "he": -2.0, "hell": -4.0}
    pieces |= {"hello": -5.0, "▁hello": -6.0, "el": -3.0, "▁h": -7.0}
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]

    def write(**changes) -> Path:
        described = {
            "model": "llama",
            "pre": "default",
            "tokens": tokens,
            "token_type": [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * len(pieces)],
            "scores": [0.0] * 259 + list(pieces.values()),
            "bos_token_id": 1,
            "eos_token_id": 2,
            "unknown_token_id": 0,
        }
        return write_gguf(**(described | changes))

    write.tokens = tokens
    return write


def byte_letters() -> list[str]:
    """GPT-2's letter for each byte: itself where it prints, else the next free one from U+0100."""
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return [chr(byte) if byte in printing else chr(256 + others.index(byte)) for byte in range(256)]
