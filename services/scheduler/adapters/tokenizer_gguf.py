"""A tokenizer from the vocabulary in a GGUF file."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from scheduler.adapters.gguf_metadata import Value, read_gguf_metadata
from scheduler.errors import InvalidConfiguration

T = TypeVar("T", bool, int, str)

CONTROL = 3
USER_DEFINED = 4
END_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
SPACE = "\u2581"

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
WORDS_AND_DIGITS = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
TEKKEN_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
TEKKEN_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{TEKKEN_UPPER}*{TEKKEN_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{TEKKEN_UPPER}+{TEKKEN_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL
)


@dataclass(frozen=True, slots=True)
class Splitting:
    """How text is cut into words before byte pairs are merged, as the model's own tokenizer does.

    ``pattern`` is empty for GPT-2's built-in one. ``whole_words`` looks a word up before it merges.
    """

    pattern: str = ""
    single_digits: bool = False
    whole_words: bool = False
    adds_bos: bool = False
    composes_unicode: bool = False


GPT2 = Splitting()
SMOLLM = Splitting(single_digits=True)
LLAMA3 = Splitting(WORDS_AND_DIGITS % 3, whole_words=True, adds_bos=True)
QWEN2 = Splitting(WORDS_AND_DIGITS % 1, composes_unicode=True)
SPLITTINGS: Mapping[str, Splitting] = {
    "default": GPT2,
    "gpt-2": GPT2,
    "smollm": SMOLLM,
    "starcoder": SMOLLM,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "llama-bpe": LLAMA3,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "tekken": Splitting(TEKKEN, whole_words=True, adds_bos=True),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the file says of its tokens; a token's id is its index."""

    tokens: list[str]
    token_types: list[int]
    scores: list[float]
    merges: list[tuple[str, str]]
    splitting_name: str
    bos_token_id: int | None
    unknown_token_id: int | None
    add_bos: bool | None
    add_space_prefix: bool
    end_token_ids: frozenset[int]


def gguf_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, frozenset[int]]:
    """The tokenizer and its end-of-sequence ids. Reads metadata only.

    Raises ``InvalidConfiguration`` for a tokenizer model or a way of splitting that is not known here.
    """
    metadata = read_gguf_metadata(path)
    model = _optional(metadata, "tokenizer.ggml.model", str)
    build = BUILDERS.get(model or "")
    if build is None:
        raise InvalidConfiguration(
            f"model {path}: tokenizer.ggml.model is {model!r}, but supported are {', '.join(sorted(BUILDERS))}"
        )
    vocabulary = read_vocabulary(path, metadata)
    try:
        return build(vocabulary), vocabulary.end_token_ids
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"model {path}: {error}") from None


def read_vocabulary(path: Path, metadata: Mapping[str, Value]) -> Vocabulary:
    """Raises ``InvalidConfiguration`` where the lists contradict each other."""
    tokens = _list(metadata, "tokenizer.ggml.tokens")
    if not tokens:
        raise InvalidConfiguration(f"model {path}: tokenizer.ggml.tokens is missing or empty")
    vocabulary = Vocabulary(
        tokens=[str(token) for token in tokens],
        token_types=[int(str(kind)) for kind in _list(metadata, "tokenizer.ggml.token_type")],
        scores=[float(str(score)) for score in _list(metadata, "tokenizer.ggml.scores")],
        merges=[_pair(str(merge)) for merge in _list(metadata, "tokenizer.ggml.merges")],
        splitting_name=_optional(metadata, "tokenizer.ggml.pre", str) or "default",
        bos_token_id=_optional(metadata, "tokenizer.ggml.bos_token_id", int),
        unknown_token_id=_optional(metadata, "tokenizer.ggml.unknown_token_id", int),
        add_bos=_optional(metadata, "tokenizer.ggml.add_bos_token", bool),
        add_space_prefix=_optional(metadata, "tokenizer.ggml.add_space_prefix", bool) is not False,
        end_token_ids=frozenset(i for key in END_KEYS if (i := _optional(metadata, key, int)) is not None),
    )
    for name, column in (("token_type", vocabulary.token_types), ("scores", vocabulary.scores)):
        if column and len(column) != len(tokens):
            raise InvalidConfiguration(f"model {path}: {len(tokens)} tokens, but {len(column)} entries of {name}")
    for token_id in (vocabulary.bos_token_id, vocabulary.unknown_token_id, *vocabulary.end_token_ids):
        if token_id is not None and token_id >= len(tokens):
            raise InvalidConfiguration(f"model {path}: special token {token_id} of {len(tokens)} tokens")
    return vocabulary


def _byte_level(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    splitting = SPLITTINGS.get(vocabulary.splitting_name)
    if splitting is None:
        raise InvalidConfiguration(
            f"tokenizer.ggml.pre is {vocabulary.splitting_name!r}, but supported are {', '.join(sorted(SPLITTINGS))}"
        )
    tokenizer = tokenizers.Tokenizer(
        models.BPE(vocab=_ids(vocabulary), merges=vocabulary.merges, ignore_merges=splitting.whole_words)
    )
    if splitting.composes_unicode:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[pre_tokenizers.PreTokenizer] = []
    if splitting.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if splitting.pattern:
        steps.append(pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splitting.pattern))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_special_tokens(tokenizer, vocabulary, adds_bos=splitting.adds_bos)


def _sentencepiece(vocabulary: Vocabulary) -> tokenizers.Tokenizer:
    unknown = vocabulary.unknown_token_id
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            vocab=_ids(vocabulary),
            merges=vocabulary.merges or _merges_of_scores(vocabulary),
            unk_token=None if unknown is None else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = [normalizers.Prepend(SPACE)] if vocabulary.add_space_prefix else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return _with_special_tokens(tokenizer, vocabulary, adds_bos=True)


BUILDERS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _merges_of_scores(vocabulary: Vocabulary) -> list[tuple[str, str]]:
    """SentencePiece merges whichever pair makes the token with the best score."""
    if not vocabulary.scores:
        raise InvalidConfiguration("tokenizer.ggml.scores and tokenizer.ggml.merges are both missing")
    ids = _ids(vocabulary)
    merges = [
        (-vocabulary.scores[token_id], ids[token[:i]], ids[token[i:]])
        for token, token_id in ids.items()
        for i in range(1, len(token))
        if token[:i] in ids and token[i:] in ids
    ]
    merges.sort()
    return [(vocabulary.tokens[left], vocabulary.tokens[right]) for _, left, right in merges]


def _with_special_tokens(
    tokenizer: tokenizers.Tokenizer, vocabulary: Vocabulary, *, adds_bos: bool
) -> tokenizers.Tokenizer:
    kinds = list(zip(vocabulary.tokens, vocabulary.token_types, strict=False))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, k in kinds if k == CONTROL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token, kind in kinds if kind == USER_DEFINED])
    bos_id = vocabulary.bos_token_id
    wanted = adds_bos if vocabulary.add_bos is None else vocabulary.add_bos
    if wanted and bos_id is not None:
        bos = vocabulary.tokens[bos_id]
        tokenizer.post_processor = processors.TemplateProcessing(single=[bos, "$A"], special_tokens=[(bos, bos_id)])
    return tokenizer


def _ids(vocabulary: Vocabulary) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(vocabulary.tokens)}


def _pair(merge: str) -> tuple[str, str]:
    left, _, right = merge.partition(" ")
    return left, right


def _list(metadata: Mapping[str, Value], key: str) -> list[Value]:
    value = metadata.get(key, [])
    if not isinstance(value, list):
        raise InvalidConfiguration(f"{key} is {value!r}, not a list")
    return value


def _optional(metadata: Mapping[str, Value], key: str, kind: type[T]) -> T | None:
    value = metadata.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise InvalidConfiguration(f"{key} is {value!r}, not of type {kind.__name__}")
