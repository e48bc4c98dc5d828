"""Prompts of exact lengths, made of real text."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path

from octavo.bench.workload import Passage, RequestShape

CORPUS = Path(__file__).parent / "data" / "sonnet.txt"
OPENING_TOKENS = 6

Prompt = str | list[int]  # as the field `prompt` of a request holds it


class PromptWriter:
    """Finds words for request shapes: the same for the same corpus, seed and passage.

    A passage opens with a few tokens from one place of the corpus and goes on from another, so that two passages have
    the same beginning, which a prefix cache would find, about once in the corpus length squared.
    """

    def __init__(self, corpus: Sequence[int], seed: int, text_of: Callable[[Sequence[int]], str] | None = None) -> None:
        """Writes token ids, or text where ``text_of`` says how token ids read."""
        self._corpus = corpus
        self._seed = seed
        self._text_of = text_of

    def write(self, shape: RequestShape) -> Prompt:
        """The prompt of a request."""
        token_ids = [token_id for passage in shape.passages for token_id in self._passage(passage)]
        return token_ids if self._text_of is None else self._text_of(token_ids)

    def _passage(self, passage: Passage) -> list[int]:
        generator = random.Random(f"{self._seed} {passage.name}")  # noqa: S311 - no secret
        opening = self._excerpt(generator, min(OPENING_TOKENS, passage.num_tokens))
        return opening + self._excerpt(generator, passage.num_tokens - len(opening))

    def _excerpt(self, generator: random.Random, num_tokens: int) -> list[int]:
        start = generator.randrange(len(self._corpus))
        return [self._corpus[(start + i) % len(self._corpus)] for i in range(num_tokens)]


class Words:
    """Stands in for a tokenizer where none can be had: a token is a word."""

    def __init__(self, text: str) -> None:
        self._vocabulary = sorted(set(text.split()))

    def encode(self, text: str) -> list[int]:
        """Ids of the words of the text that the vocabulary was made of."""
        ids = {word: word_id for word_id, word in enumerate(self._vocabulary)}
        return [ids[word] for word in text.split()]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The words, one space apart."""
        return " ".join(self._vocabulary[token_id] for token_id in token_ids)
