import json

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from scheduler.adapters.tokenizer import load_tokenizer
from scheduler.errors import InvalidConfiguration

TEXTS = ["hello a", "  hello\n\n", "héllo 日本語 🍋", "\x00\x7f", "a1212", "x" * 300]


def texts_of(tokens: list[str], ids: list[int]) -> list[str]:
    return [tokens[i] for i in ids]


@pytest.mark.parametrize("text", TEXTS)
def test_byte_level_text_survives_the_round_trip(byte_level, text):
    tokenizer = load_tokenizer(byte_level())
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_sentencepiece_text_survives_the_round_trip_after_its_leading_space(sentencepiece, text):
    tokenizer = load_tokenizer(sentencepiece())
    assert tokenizer.decode(tokenizer.encode(text)) == " " + text


def test_words_are_merged_by_rank(byte_level):
    ids = load_tokenizer(byte_level()).encode("hello ahell")
    assert texts_of(byte_level.tokens, ids) == ["hello", "Ġa", "hell"]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "12", ["1", "2"]),
        ("smollm", "  1", ["ĠĠ", "1"]),
        ("default", "12", ["12"]),
        ("default", "  1", ["Ġ", "Ġ", "1"]),
        ("llama-bpe", "12", ["12"]),
        ("qwen2", "12", ["1", "2"]),
        ("tekken", "12", ["1", "2"]),
    ],
)
def test_text_is_split_as_the_model_says(byte_level, pre, text, pieces):
    ids = load_tokenizer(byte_level(pre=pre, add_bos_token=False)).encode(text)
    assert texts_of(byte_level.tokens, ids) == pieces


def test_qwen2_composes_characters_first(byte_level):
    tokenizer = load_tokenizer(byte_level(pre="qwen2"))
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")


@pytest.mark.parametrize(
    ("pre", "flag", "added"),
    [("smollm", None, False), ("smollm", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_the_begin_token_is_added_as_the_file_or_else_its_kind_says(byte_level, pre, flag, added):
    tokenizer = load_tokenizer(byte_level(pre=pre, add_bos_token=flag))
    begin = byte_level.tokens.index("<|begin|>")
    assert (tokenizer.encode("hello")[0] == begin) is added
    assert tokenizer.encode("") == ([begin] if added else [])


def test_special_tokens_are_whole_in_a_prompt_and_absent_from_text(byte_level):
    tokenizer = load_tokenizer(byte_level())
    ids = tokenizer.encode("a<|turn|><think>a")
    assert texts_of(byte_level.tokens, ids) == ["a", "<|turn|>", "<think>", "a"]
    assert tokenizer.decode(ids) == "a<think>a"


def test_the_ends_of_sequence_and_of_turn_end_a_sequence(byte_level):
    end, turn = byte_level.tokens.index("<|end|>"), byte_level.tokens.index("<|turn|>")
    assert load_tokenizer(byte_level()).eos_token_ids == {end}
    assert load_tokenizer(byte_level(eot_token_id=turn)).eos_token_ids == {end, turn}
    assert load_tokenizer(byte_level()).vocab_size == len(byte_level.tokens)


def test_an_incomplete_character_decodes_to_a_replacement(byte_level, sentencepiece):
    for write in (byte_level, sentencepiece):
        tokenizer = load_tokenizer(write())
        ids = tokenizer.encode("🍋")
        assert tokenizer.decode(ids[:-1]).endswith("\ufffd")
        assert tokenizer.decode(ids).endswith("🍋")


def test_sentencepiece_merges_the_pair_with_the_best_score(sentencepiece):
    tokenizer = load_tokenizer(sentencepiece())
    assert texts_of(sentencepiece.tokens, tokenizer.encode("hello")) == ["<s>", "▁hello"]
    assert texts_of(sentencepiece.tokens, tokenizer.encode("hel"))[1:] == ["▁", "he", "l"]


def test_sentencepiece_falls_back_to_bytes(sentencepiece):
    ids = load_tokenizer(sentencepiece(add_bos_token=False, add_space_prefix=False)).encode("é")
    assert texts_of(sentencepiece.tokens, ids) == ["<0xC3>", "<0xA9>"]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"model": "bert"}, "'bert', but supported are gpt2, llama"),
        ({"model": None}, "None, but supported are gpt2, llama"),
        ({"pre": "chatglm-bpe"}, "'chatglm-bpe', but supported are .*smollm"),
        ({"tokens": None}, "tokens is missing"),
        ({"token_type": [1, 1]}, "2 entries of token_type"),
        ({"eos_token_id": 9999}, "special token 9999"),
        ({"merges": "a b"}, "not a list"),
        ({"pre": 5}, "pre is 5"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_can(byte_level, changes, part):
    with pytest.raises(InvalidConfiguration, match=part):
        load_tokenizer(byte_level(**changes))


def test_sentencepiece_without_scores_and_merges_is_refused(sentencepiece):
    with pytest.raises(InvalidConfiguration, match="both missing"):
        load_tokenizer(sentencepiece(scores=None))


@pytest.fixture
def folder(tmp_path):
    """A Hugging Face folder whose decoder cuts a leading space off."""
    tokenizer = tokenizers.Tokenizer(models.WordLevel({"▁a": 0, "▁b": 1, "</s>": 2, "<|eot|>": 3}, unk_token="▁a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<|eot|>"])
    tokenizer.enable_truncation(1)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    return tmp_path


def test_a_folder_is_read_with_its_end_tokens(folder):
    assert load_tokenizer(folder).eos_token_ids == {2}
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_ids == {2, 3}
    assert tokenizer.encode("a b") == [0, 1]
    assert tokenizer.vocab_size == 4


@pytest.mark.parametrize(
    "decoder",
    [decoders.Metaspace(), decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])],
)
def test_text_of_a_folder_keeps_the_space_between_prompt_and_output(folder, decoder):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.decoder = decoder
    tokenizer.save(str(folder / "tokenizer.json"))
    loaded = load_tokenizer(folder)
    assert loaded.decode([0]) + loaded.decode([1]) == loaded.decode([0, 1]) == " a b"


def test_a_folder_without_a_decoder_is_read(folder):
    description = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(description | {"decoder": None}))
    assert load_tokenizer(folder).encode("a") == [0]


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("tokenizer.json", None, "no tokenizer.json"),
        ("tokenizer.json", "{", "not JSON"),
        ("tokenizer.json", "[]", "no JSON object"),
        ("tokenizer.json", '{"model": {"type": "Magic"}}', "unusable"),
        ("config.json", "{", "config.json is not JSON"),
    ],
)
def test_a_damaged_folder_is_refused_with_the_file_at_fault(folder, name, content, part):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(InvalidConfiguration, match=part):
        load_tokenizer(folder)


def test_a_model_that_is_not_there_or_of_another_kind_is_refused(tmp_path):
    with pytest.raises(InvalidConfiguration, match="no such file or folder"):
        load_tokenizer(tmp_path / "absent.gguf")
    (tmp_path / "model.bin").touch()
    with pytest.raises(InvalidConfiguration, match=r"expected a \.gguf file"):
        load_tokenizer(tmp_path / "model.bin")
