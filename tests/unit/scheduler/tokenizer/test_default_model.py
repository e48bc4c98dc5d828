"""The default model's tokenizer against two others: transformers', and a plain byte-pair merge written here."""

import itertools
import time
from pathlib import Path

import pytest
import regex

from scheduler.adapters.gguf_metadata import read_gguf_metadata
from scheduler.adapters.tokenizer import load_tokenizer

SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date."""
TEXTS = [
    SONNET,
    "The capital of France is",
    "def f(x: int) -> str:\n\treturn f'{x:>08}' if x != 0x1F else None  # 3.14e-10\n\n\n",
    '<html><body class="a b">&amp;</body></html>\r\n\r\n',
    "日本語のテキスト、中文文本。한국어 텍스트",
    "🍋👩‍👩‍👧‍👦🇫🇷 e\u0301 naïve Ω≈ç√∫ ﷽",
    "   leading, \t\ttabs,    runs     of spaces   \n \n  \n",
    "it's we'll THEY'RE don't 'quoted' I'd",
    "\u00a0non\u2003breaking\u200bzero\ufeff",
    "\x00\x01\x7f\x80",
    "a" * 500,
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
]
DIGITS = ["12345 67 8", "  1", "x  42\n\n 7", "½ ² ٣ Ⅷ", "2024-01-31T12:00:00Z"]


@pytest.fixture(scope="module")
def tokenizer(model_path):
    return load_tokenizer(Path(model_path))


@pytest.fixture(scope="module")
def transformers_tokenizer(model_path):
    from transformers import AutoTokenizer

    path = Path(model_path)
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)


@pytest.fixture(scope="module")
def plain_encode(model_path):
    """Digits apart, then GPT-2's words, then the best-ranked pair merged until none is left."""
    metadata = read_gguf_metadata(Path(model_path))
    ids = {token: i for i, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    printing = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printing]
    letters = {byte: chr(byte if byte in printing else 256 + others.index(byte)) for byte in range(256)}
    words = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")

    def encode(text: str) -> list[int]:
        encoded = []
        for word in (word for part in regex.split(r"(\p{N})", text) for word in words.findall(part)):
            pieces = [letters[byte] for byte in word.encode()]
            while pairs := {pair: ranks[pair] for pair in itertools.pairwise(pieces) if pair in ranks}:
                left, right = min(pairs, key=pairs.get)
                merged, i = [], 0
                while i < len(pieces):
                    both = tuple(pieces[i : i + 2]) == (left, right)
                    merged.append(left + right if both else pieces[i])
                    i += 2 if both else 1
                pieces = merged
            encoded += [ids[piece] for piece in pieces]
        return encoded

    return encode


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_transformers(tokenizer, transformers_tokenizer, text):
    assert tokenizer.encode(text) == transformers_tokenizer(text)["input_ids"]


@pytest.mark.parametrize("text", [*TEXTS[:-1], *DIGITS])
def test_ids_are_those_of_a_plain_byte_pair_merge(tokenizer, plain_encode, text):
    assert tokenizer.encode(text) == plain_encode(text)


@pytest.mark.parametrize("text", [*TEXTS[:-1], *DIGITS])
def test_text_survives_the_round_trip(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_chat_tokens_are_special(tokenizer):
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_token_ids == {2}
    assert tokenizer.encode("<|im_end|>") == [2]
    assert tokenizer.decode([1, 2]) == ""


def test_it_is_ready_within_a_second(model_path):
    start_s = time.process_time()
    load_tokenizer(Path(model_path))
    assert time.process_time() - start_s < 1.0
