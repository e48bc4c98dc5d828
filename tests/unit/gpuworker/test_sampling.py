"""Choosing a token: each rule alone, in the documented order, and independent of the batch."""

import math

import pytest
import torch

from gpuworker.core.steps import Sample, SamplingParams
from gpuworker.errors import LogitsNotFinite
from gpuworker.logprobs import scores
from gpuworker.sampling import sample

PROBABILITIES = torch.tensor([0.05, 0.3, 0.1, 0.25, 0.2, 0.1])


def draw(logits: torch.Tensor, count: int, **params: float) -> torch.Tensor:
    """Counts of tokens over ``count`` positions of one sequence."""
    samples = [Sample(1, position, SamplingParams(**params)) for position in range(count)]
    return torch.bincount(torch.tensor(sample(logits.expand(count, -1), samples)), minlength=logits.numel())


def log_probabilities(logits: torch.Tensor, token_ids: list[int]) -> list[float]:
    return list(scores(logits, token_ids, [0] * len(token_ids)).logprobs)


def chi_squared(counts: torch.Tensor, probabilities: torch.Tensor) -> float:
    expected = probabilities * counts.sum()
    kept = probabilities > 0
    assert counts[~kept].sum() == 0
    return ((counts - expected)[kept] ** 2 / expected[kept]).sum().item()


def test_temperature_zero_takes_the_largest_and_the_first_of_equals():
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]])
    assert sample(logits, [Sample(1, 0, SamplingParams()), Sample(2, 0, SamplingParams())]) == [1, 0]


def test_nothing_to_sample_gives_nothing():
    assert sample(torch.empty(0, 10), []) == []


def test_draws_follow_the_probabilities():
    counts = draw(PROBABILITIES.log(), 20_000, temperature=1.0, seed=1)
    assert chi_squared(counts, PROBABILITIES) < 20.5  # 5 degrees of freedom, p = 0.001


def test_temperature_sharpens_and_flattens():
    for temperature in (0.5, 2.0):
        expected = torch.softmax(PROBABILITIES.log() / temperature, dim=0)
        counts = draw(PROBABILITIES.log(), 20_000, temperature=temperature, seed=2)
        assert chi_squared(counts, expected) < 20.5


def test_top_k_keeps_the_most_probable_and_their_proportions():
    expected = torch.tensor([0, 0.3, 0, 0.25, 0.2, 0]) / 0.75
    assert chi_squared(draw(PROBABILITIES.log(), 20_000, temperature=1.0, top_k=3, seed=3), expected) < 13.8


def test_top_k_keeps_tokens_tied_with_the_last_one():
    counts = draw(PROBABILITIES.log(), 5000, temperature=1.0, top_k=4, seed=3)
    assert (counts > 0).tolist() == [False, True, True, True, True, True]


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    expected = torch.tensor([0, 0.3, 0, 0.25, 0, 0]) / 0.55
    assert chi_squared(draw(PROBABILITIES.log(), 20_000, temperature=1.0, top_p=0.5, seed=4), expected) < 10.8


def test_min_p_keeps_tokens_by_their_share_of_the_most_probable():
    expected = torch.tensor([0, 0.3, 0, 0.25, 0.2, 0]) / 0.75  # 0.1 is less than 0.4 times 0.3
    assert chi_squared(draw(PROBABILITIES.log(), 20_000, temperature=1.0, min_p=0.4, seed=7), expected) < 13.8


def test_min_p_comes_after_the_temperature_and_before_top_p():
    # At temperature 2 the shares are roots: 0.1 has 0.58 of the largest, and 0.05 has 0.41.
    counts = draw(PROBABILITIES.log(), 5000, temperature=2.0, min_p=0.5, seed=7)
    assert (counts > 0).tolist() == [False, True, True, True, True, True]
    # Of 0.3 and 0.25 the first has 55 %.
    assert draw(PROBABILITIES.log(), 500, temperature=1.0, min_p=0.8, top_p=0.54, seed=7)[1] == 500


def test_a_tiny_top_p_or_a_top_k_of_one_is_greedy():
    for rule in ({"top_p": 1e-6}, {"top_k": 1}):
        assert draw(PROBABILITIES.log(), 200, temperature=1.5, seed=5, **rule)[1] == 200


def test_top_p_counts_shares_of_what_temperature_and_top_k_left():
    # Of 0.3, 0.25, 0.2 the first has 40 %: it alone reaches 0.39, though it has only 30 % of all.
    assert draw(PROBABILITIES.log(), 500, temperature=1.0, top_k=3, top_p=0.39, seed=6)[1] == 500


def test_top_p_is_right_where_the_nucleus_is_wider_than_the_head_that_is_sorted_first():
    vocab_size = 4000
    weights = torch.arange(vocab_size, 0, -1, dtype=torch.float64)
    nucleus = int((weights.cumsum(0) < 0.9 * weights.sum()).sum()) + 1
    order = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))
    logits = torch.empty(vocab_size)
    logits[order] = weights.log().float()
    rank = torch.empty(vocab_size, dtype=torch.long)
    rank[order] = torch.arange(vocab_size)
    samples = [Sample(1, position, SamplingParams(temperature=1.0, top_p=0.9, seed=8)) for position in range(2000)]
    ranks = rank[torch.tensor(sample(logits.expand(2000, -1), samples))]
    assert nucleus > 512
    assert nucleus * 0.97 < int(ranks.max()) + 1 <= nucleus + 1


def test_a_token_does_not_depend_on_what_shares_its_batch():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(16, 5000, generator=generator) * 3
    rules = [{}, {"top_k": 50}, {"top_p": 0.9}, {"top_k": 700, "top_p": 0.95}]
    samples = [
        Sample(
            row, 10 + row, SamplingParams(temperature=0.5 + row / 8, seed=row, choice_index=row % 3, **rules[row % 4])
        )
        for row in range(16)
    ]
    together = sample(logits, samples)
    backwards = sample(logits.flip(0), samples[::-1])[::-1]
    alone = [sample(logits[row : row + 1], samples[row : row + 1])[0] for row in range(16)]
    assert together == backwards == alone


def test_seed_choice_and_position_decide_the_token():
    logits = torch.zeros(1, 100_000)

    def token(position: int, **params: int) -> int:
        return sample(logits, [Sample(1, position, SamplingParams(temperature=1.0, **params))])[0]

    assert token(5, seed=9) == token(5, seed=9)
    assert len({token(5, seed=9), token(6, seed=9), token(5, seed=10), token(5, seed=9, choice_index=1)}) == 4


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_extreme_temperatures_and_logits_stay_finite(scale):
    logits = torch.tensor([[-3e4, 3e4, 2.9e4, 0.0]])
    token = sample(logits, [Sample(1, 0, SamplingParams(temperature=scale, seed=1))])[0]
    assert 0 <= token < 4
    assert sample(logits, [Sample(1, 0, SamplingParams(temperature=1e-4, seed=1))]) == [1]


def test_log_probabilities_are_those_of_the_unmodified_logits():
    logits = PROBABILITIES.log() * torch.ones(2, 1) + torch.tensor([[0.0], [5.0]])
    assert log_probabilities(logits, [1, 4]) == pytest.approx([math.log(0.3), math.log(0.2)])
    assert log_probabilities(torch.empty(0, 10), []) == []
    assert log_probabilities(torch.tensor([[0.0, -torch.inf]]), [0]) == [0.0]


def test_a_log_probability_does_not_depend_on_what_shares_its_batch():
    logits = torch.randn(9, 49_152, generator=torch.Generator().manual_seed(2)) * 3
    token_ids = [row * 100 for row in range(9)]
    alone = [log_probabilities(logits[row : row + 1], token_ids[row : row + 1])[0] for row in range(9)]
    assert log_probabilities(logits, token_ids) == alone
    assert alone == pytest.approx([logits[row].double().log_softmax(0)[token_ids[row]].item() for row in range(9)])


def test_the_most_probable_tokens_are_told_best_first_for_the_rows_that_ask():
    logits = torch.randn(70, 300, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    num_top = [row % 4 for row in range(70)]
    told = scores(logits, [0] * 70, num_top)
    expected = logits.double().log_softmax(-1).topk(3).values
    assert list(told.num_top) == num_top
    ids, values = iter(told.top_token_ids), iter(told.top_logprobs)
    for row, count in enumerate(num_top):
        for place in range(count):
            assert logits[row].double().log_softmax(-1)[next(ids)] == pytest.approx(expected[row, place])
            assert next(values) == pytest.approx(expected[row, place].item(), abs=1e-5)
    assert next(ids, None) is None


def test_minus_infinity_means_never():
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0])
    assert (draw(logits, 500, temperature=1.0) > 0).tolist() == [False, True, False, True]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_are_not_finite_are_named(bad, temperature):
    logits = torch.zeros(4, 10)
    logits[1, 3] = bad
    logits[3] = -torch.inf
    with pytest.raises(LogitsNotFinite) as caught:
        sample(logits, [Sample(row, 0, SamplingParams(temperature=temperature)) for row in range(4)])
    assert caught.value.row_indexes == (1, 3)
