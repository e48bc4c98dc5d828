"""Log-probabilities of prompt tokens, asked row by row while the prompt is computed.

The row at position ``p`` says how probable the token at ``p + 1`` is; nothing precedes the first token. Rows are asked
in order and each once: what a step brought stays, also when the memory of the group is dropped afterwards.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise

from scheduler.core.request import TokenLogprob
from scheduler.core.steps import StepResult, Top


class PromptScoring:
    """The prompt tokens of a group that are scored so far, each with its ``num_top`` most probable rivals."""

    def __init__(self, token_ids: tuple[int, ...], num_top: int) -> None:
        self.num_top = num_top
        self.token_ids = token_ids
        self.entries = [TokenLogprob(token_ids[0], None)]

    @property
    def is_complete(self) -> bool:
        """Whether every prompt token is scored."""
        return len(self.entries) == len(self.token_ids)

    def rows(self, position: int, num_tokens: int) -> range:
        """Positions to ask for when the ``num_tokens`` from ``position`` on are computed."""
        first, end = len(self.entries) - 1, len(self.token_ids) - 1
        return range(max(first, position), max(first, position, min(end, position + num_tokens)))


class ScoredRows:
    """The prompt tokens that a step scores. Columns; entry i of each is one row of the step."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # indexes of the step's tokens
        self.token_ids: list[int] = []  # what follows
        self.num_top: list[int] = []
        self._scorings: list[PromptScoring] = []

    def ask(self, scoring: PromptScoring, start: int, position: int, num_tokens: int) -> None:
        """Asks for the rows of a chunk that begins at ``position``, and at index ``start`` of the step's tokens."""
        positions = scoring.rows(position, num_tokens)
        self.rows += [start + row - position for row in positions]
        self.token_ids += scoring.token_ids[positions.start + 1 : positions.stop + 1]
        self.num_top += [scoring.num_top] * len(positions)
        self._scorings += [scoring] * len(positions)

    def take(self, result: StepResult) -> None:
        """Hands the answers out."""
        if not self.rows:
            return
        tops = cut_tops(self.num_top, result.scored_top_token_ids, result.scored_top_logprobs)
        for scoring, token_id, logprob, top in zip(
            self._scorings, self.token_ids, result.scored_logprobs, tops, strict=True
        ):
            scoring.entries.append(TokenLogprob(token_id, logprob, top))


def cut_tops(num_top: Iterable[int], token_ids: Iterable[int], logprobs: Iterable[float]) -> list[Top]:
    """Columns that hold ``num_top[i]`` entries for row ``i`` as one list of pairs for each row."""
    pairs = tuple(zip(token_ids, logprobs, strict=True))
    return [pairs[start:end] for start, end in pairwise(accumulate(num_top, initial=0))]
