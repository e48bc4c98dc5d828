"""Requests of the paper's datasets: joint lengths are not public, so they are drawn from what is.

The lengths of ShareGPT and Alpaca come from the two histograms of Fig. 11. Inputs and outputs are drawn apart, each at
evenly spaced quantiles (so that their means are the printed ones whatever the seed), and paired at random; a pair whose
sum is beyond the model's context swaps outputs with others until it fits (so that the marginals stay as they are).
"""

import csv
import math
import random
from bisect import bisect_left
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from itertools import accumulate

from octavo.errors import TraceUnusable

_DATA = files("octavo.simulation") / "data"
_LONGEST_HISTORY = 1024  # tokens of a chat that the prompt keeps (paper §6.5)

# WMT16 sentences in LLaMA's tokens. Neither the paper nor our data has them; these are estimates from about 21 words a
# sentence, 1.25 tokens a word in English and 1.5 in German, and the spread of sentence lengths in news.
_SOURCE_TOKENS, _TARGET_TOKENS, _SENTENCE_SHAPE = 26.0, 31.0, 3.0


class Dataset(StrEnum):
    """Where prompts come from."""

    SHAREGPT = "sharegpt"  # one turn of a chat: long prompts, long outputs (paper §6.1)
    ALPACA = "alpaca"  # instructions: short prompts, short outputs (paper §6.1)
    CHATBOT = "chatbot"  # ShareGPT with the history in the prompt (paper §6.5)
    TRANSLATION = "translation"  # WMT16 English to German (paper §6.4)


@dataclass(frozen=True, slots=True)
class Length:
    """Tokens of one request."""

    num_prompt_tokens: int
    num_output_tokens: int


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bins of equal probability within; edges in tokens."""

    edges: tuple[tuple[float, float], ...]
    cumulative: tuple[float, ...]

    def quantile(self, share: float) -> int:
        """The length up to which ``share`` of all lengths lie; those within a bin are equally probable."""
        index = min(bisect_left(self.cumulative, share), len(self.edges) - 1)
        before, upto = self.cumulative[index - 1] if index else 0.0, self.cumulative[index]
        low, high = self.edges[index]
        lengths = range(math.ceil(low), math.ceil(high))
        return lengths[min(int(len(lengths) * (share - before) / (upto - before)), len(lengths) - 1)]


def sample_lengths(dataset: Dataset, count: int, max_model_len: int, seed: int) -> list[Length]:
    """``count`` requests with prompt and output below ``max_model_len`` tokens together.

    Raises:
        TraceUnusable: No pairing of the lengths fits the context.

    """
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    if dataset is Dataset.CHATBOT:
        return _chatbot_lengths(count, draw)
    if dataset is Dataset.TRANSLATION:
        return [_translation_length(draw, max_model_len) for _ in range(count)]
    inputs, outputs = (_stratified(histogram, count, draw) for histogram in _histograms(dataset))
    _swap_until_all_fit(inputs, outputs, max_model_len, draw)
    return list(map(Length, inputs, outputs))


def _stratified(histogram: Histogram, count: int, draw: random.Random) -> list[int]:
    """Lengths at evenly spaced quantiles, in random order."""
    lengths = [histogram.quantile((index + 0.5) / count) for index in range(count)]
    draw.shuffle(lengths)
    return lengths


def _swap_until_all_fit(inputs: list[int], outputs: list[int], max_model_len: int, draw: random.Random) -> None:
    """Swaps the outputs of pairs that are too long with those of pairs where both then fit."""
    for index in range(len(inputs)):
        if inputs[index] + outputs[index] < max_model_len:
            continue
        for other in draw.sample(range(len(inputs)), len(inputs)):
            fits = inputs[index] + outputs[other] < max_model_len and inputs[other] + outputs[index] < max_model_len
            if fits:
                outputs[index], outputs[other] = outputs[other], outputs[index]
                break
        else:
            raise TraceUnusable(
                f"an input of {inputs[index]} tokens has no output below {max_model_len} together with it"
            )


def _histograms(dataset: Dataset) -> tuple[Histogram, Histogram]:
    name = {Dataset.SHAREGPT: "ShareGPT", Dataset.ALPACA: "Alpaca"}[dataset]
    with (_DATA / "fig11_length_histograms.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    return _histogram(rows, f"{name}_input"), _histogram(rows, f"{name}_output")


def _histogram(rows: list[dict[str, str]], side: str) -> Histogram:
    own = [row for row in rows if row["dataset_side"] == side]
    return Histogram(
        tuple((float(row["bin_lo_tokens"]), float(row["bin_hi_tokens"])) for row in own),
        tuple(accumulate(float(row["probability"]) for row in own)),
    )


def _chatbot_lengths(count: int, draw: random.Random) -> list[Length]:
    """Pairs of a multi-turn ShareGPT trace; of a longer history the last 1024 tokens are the prompt (paper §6.5)."""
    with (_DATA / "chatbot_lengths.csv").open() as lines:
        pairs = [(int(row["num_prompt_tokens"]), int(row["num_output_tokens"])) for row in csv.DictReader(lines)]
    chosen = [pairs[index % len(pairs)] for index in range(count)]
    draw.shuffle(chosen)
    return [Length(min(prompt, _LONGEST_HISTORY), min(output, _LONGEST_HISTORY)) for prompt, output in chosen]


def _translation_length(draw: random.Random, max_model_len: int) -> Length:
    """A sentence and its translation, which is longer by the same factor."""
    length = draw.gammavariate(_SENTENCE_SHAPE, 1.0 / _SENTENCE_SHAPE)
    longest = max_model_len // 4
    return Length(*(min(longest, max(1, round(length * mean))) for mean in (_SOURCE_TOKENS, _TARGET_TOKENS)))
