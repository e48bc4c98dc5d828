"""The bytes of single tokens make up the bytes of the text."""

import pytest

from scheduler.adapters.tokenizer import load_tokenizer

TEXTS = ["Hello, world", " é€ 🍋 \n\t", "日本語 한국어", "naïve — “quoted”", "\x00\x7f"]


@pytest.mark.parametrize("text", TEXTS)
def test_they_join_to_the_text_in_the_default_model(model_path, text):
    tokenizer = load_tokenizer(model_path)
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


def test_special_tokens_are_named_and_known(model_path):
    tokenizer = load_tokenizer(model_path)
    (end,) = tokenizer.encode("<|im_end|>")
    assert tokenizer.token_bytes(end) == b"<|im_end|>"
    assert tokenizer.is_special(end)
    assert not tokenizer.is_special(tokenizer.encode("a")[0])
    assert tokenizer.token_bytes(10**7) == b""


@pytest.mark.parametrize("text", ["hello", "é", "a b"])
def test_they_join_to_the_text_in_sentencepiece_vocabularies(sentencepiece, text):
    tokenizer = load_tokenizer(sentencepiece(add_bos_token=False, add_space_prefix=False))
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()
