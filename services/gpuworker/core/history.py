"""The tokens that a sequence has so far, for rules that look back at them.

Tokens are taken in where they are computed, not where they are sampled. So the history is a function of the tokens
alone: it is the same after a preemption, for every branch of a fork, and for a step that is computed again.
"""

from array import array
from collections.abc import Sequence


class TokenHistory:
    """Known tokens, prompt first, and how often each distinct one stands in the output."""

    def __init__(self, token_ids: Sequence[int], num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._places: dict[int, int] = {}  # token id: its index in the two columns
        self._tokens = array("q")
        self.distinct_token_ids = array("q")
        self.output_counts = array("q")  # 0 for a token that stands in the prompt only
        self.extend(0, token_ids)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, position: int, token_ids: Sequence[int]) -> None:
        """Takes in ``token_ids``, the first of which stands at ``position``; those that are known are left out."""
        for token_id in token_ids[max(0, len(self._tokens) - position) :]:
            place = self._places.setdefault(token_id, len(self._places))
            if place == len(self.distinct_token_ids):
                self.distinct_token_ids.append(token_id)
                self.output_counts.append(0)
            self.output_counts[place] += len(self._tokens) >= self._num_prompt_tokens
            self._tokens.append(token_id)

    def output_ends_with(self, token_ids: Sequence[int]) -> bool:
        """Whether the output so far has these tokens at its end."""
        start = len(self._tokens) - len(token_ids)
        return start >= self._num_prompt_tokens and list(self._tokens[start:]) == list(token_ids)
