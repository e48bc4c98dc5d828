"""The paper's requests, made smaller for a small machine: lengths, context and blocks by one factor.

Shares of memory do not change with the factor: a sequence has as many blocks as it would have had.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from octavo.bench.workload import Passage, RequestShape, Workload
from octavo.simulation.lengths import Dataset, Length, sample_lengths

MAX_MODEL_LEN, BLOCK_SIZE = 2048, 16  # the paper's
SHARED = "shared"  # the passage that all requests of a burst begin with


@dataclass(frozen=True, slots=True)
class Scale:
    """Everything is ``1 / divisor`` as long as in the paper."""

    divisor: int

    @property
    def max_model_len(self) -> int:
        """Tokens of prompt and output."""
        return MAX_MODEL_LEN // self.divisor

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return max(1, BLOCK_SIZE // self.divisor)

    def lengths(self, dataset: Dataset, count: int, seed: int = 0) -> list[Length]:
        """Requests of a dataset."""
        return [self._scaled(length) for length in sample_lengths(dataset, count, MAX_MODEL_LEN, seed)]

    def known_lengths(self, dataset: Dataset, count: int, seed: int = 0) -> list[Length]:
        """The same; no two prompts are equally long, so that an oracle can tell them apart."""
        return _apart(self.lengths(dataset, count, seed), self.max_model_len)

    def _scaled(self, length: Length) -> Length:
        prompt, output = (
            max(1, round(tokens / self.divisor)) for tokens in (length.num_prompt_tokens, length.num_output_tokens)
        )
        return Length(prompt, max(1, min(output, self.max_model_len - 1 - prompt)))


def _apart(lengths: Sequence[Length], max_model_len: int) -> list[Length]:
    """Takes for each prompt the nearest length that nobody before has."""
    taken: set[int] = set()
    result = []
    for length in lengths:
        room = range(1, max_model_len - length.num_output_tokens)
        nearest = min((n for n in room if n not in taken), key=lambda n: abs(n - length.num_prompt_tokens))
        taken.add(nearest)
        result.append(Length(nearest, length.num_output_tokens))
    return result


def known_outputs(lengths: Sequence[Length]) -> dict[int, int]:
    """What an oracle is told: output tokens by prompt tokens."""
    return {length.num_prompt_tokens: length.num_output_tokens for length in lengths}


def burst(lengths: Sequence[Length], name: str, num_shared_tokens: int = 0) -> Workload:
    """All at once; each prompt begins with ``num_shared_tokens`` that all have, which count as part of its length."""
    shapes = []
    for index, length in enumerate(lengths):
        own = Passage(f"own {index}", length.num_prompt_tokens - num_shared_tokens)
        passages = (Passage(SHARED, num_shared_tokens), own) if num_shared_tokens else (own,)
        shapes.append(RequestShape(passages, length.num_output_tokens))
    return Workload(name, tuple(shapes), max_concurrency=None)
