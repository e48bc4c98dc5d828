"""Scores of prompt tokens: each asked once, whatever chunks and preemptions do."""

import pytest

from scheduler.core.request import TokenLogprob
from scheduler.core.scoring import PromptScoring, ScoredRows, cut_tops
from scheduler.core.steps import StepResult

PROMPT = (10, 11, 12, 13, 14)


def take(scoring: PromptScoring, position: int, num_tokens: int) -> list[int]:
    """Computes a chunk and hands its scores out; the indexes of the rows that were asked for."""
    scored = ScoredRows()
    scored.ask(scoring, 100, position, num_tokens)
    assert len(scored.rows) == len(scored.token_ids) == len(scored.num_top)
    tops = [(token_id, -0.5) for token_id in scored.token_ids]
    result = StepResult(
        1,
        scored_logprobs=[-token_id / 10 for token_id in scored.token_ids],
        scored_top_token_ids=[token_id for token_id, _ in tops],
        scored_top_logprobs=[logprob for _, logprob in tops],
    )
    scored.take(result)
    return scored.rows


@pytest.mark.parametrize(
    ("chunks", "rows"),
    [
        ([(0, 5)], [[100, 101, 102, 103]]),
        ([(0, 2), (2, 3)], [[100, 101], [100, 101]]),
        ([(0, 4), (4, 1)], [[100, 101, 102, 103], []]),
        ([(0, 2), (0, 5)], [[100, 101], [102, 103]]),  # preempted in between
        ([(0, 5), (0, 8)], [[100, 101, 102, 103], []]),  # preempted afterwards, with three output tokens
        ([(0, 1), (0, 1), (1, 9)], [[100], [], [100, 101, 102]]),
    ],
)
def test_every_token_but_the_first_is_scored_once(chunks, rows):
    scoring = PromptScoring(PROMPT, num_top=1)
    assert [take(scoring, *chunk) for chunk in chunks] == rows
    assert scoring.is_complete
    first, *rest = scoring.entries
    assert first == TokenLogprob(10, None)
    assert rest == [TokenLogprob(token_id, -token_id / 10, ((token_id, -0.5),)) for token_id in PROMPT[1:]]


def test_a_prompt_of_one_token_is_complete_from_the_start():
    scoring = PromptScoring((7,), num_top=0)
    assert scoring.is_complete
    assert take(scoring, 0, 1) == []


def test_tops_are_cut_by_their_counts():
    assert cut_tops([2, 0, 1], [1, 2, 3], [-1.0, -2.0, -3.0]) == [((1, -1.0), (2, -2.0)), (), ((3, -3.0),)]
