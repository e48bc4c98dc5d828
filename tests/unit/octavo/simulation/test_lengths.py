"""Requests that look like the paper's."""

from statistics import mean

import pytest

from octavo.simulation.lengths import Dataset, Histogram, sample_lengths
from octavo.simulation.paper import printed
from octavo.simulation.workload import Workload, trace


@pytest.mark.parametrize(("dataset", "name"), [(Dataset.SHAREGPT, "ShareGPT"), (Dataset.ALPACA, "Alpaca")])
def test_the_means_are_those_that_the_paper_prints(dataset, name):
    lengths = sample_lengths(dataset, 2000, 2048, seed=1)
    paper = printed()["fig11_mean_tokens"][name]
    assert mean(length.num_prompt_tokens for length in lengths) == pytest.approx(paper["input"], rel=0.02)
    assert mean(length.num_output_tokens for length in lengths) == pytest.approx(paper["output"], rel=0.01)


@pytest.mark.parametrize("dataset", list(Dataset))
def test_every_request_fits_the_context(dataset):
    lengths = sample_lengths(dataset, 3000, 2048, seed=2)
    assert len(lengths) == 3000
    assert all(length.num_prompt_tokens >= 1 and length.num_output_tokens >= 1 for length in lengths)
    assert max(length.num_prompt_tokens + length.num_output_tokens for length in lengths) <= 2048


def test_pairs_that_are_too_long_swap_outputs_and_keep_the_marginals():
    narrow, wide = (sample_lengths(Dataset.SHAREGPT, 2000, limit, seed=3) for limit in (2048, 10**6))
    for side in ("num_prompt_tokens", "num_output_tokens"):
        assert sorted(getattr(length, side) for length in narrow) == sorted(getattr(length, side) for length in wide)
    assert narrow != wide


def test_inputs_and_outputs_are_independent():
    lengths = sample_lengths(Dataset.SHAREGPT, 4000, 2048, seed=4)
    inputs, outputs = zip(*((length.num_prompt_tokens, length.num_output_tokens) for length in lengths), strict=True)
    in_mean, out_mean = mean(inputs), mean(outputs)
    covariance = mean((i - in_mean) * (o - out_mean) for i, o in zip(inputs, outputs, strict=True))
    spread = (mean((i - in_mean) ** 2 for i in inputs) * mean((o - out_mean) ** 2 for o in outputs)) ** 0.5
    assert abs(covariance / spread) < 0.1


def test_a_quantile_lies_within_its_bin():
    histogram = Histogram(((0.99, 11.0), (11.0, 31.0)), (0.5, 1.0))
    shares = (0.01, 0.12, 0.22, 0.37, 0.5, 0.51, 0.74, 1.0)
    assert [histogram.quantile(share) for share in shares] == [1, 3, 5, 8, 10, 11, 20, 30]


def test_a_chat_keeps_the_last_1024_tokens_of_its_history():
    lengths = sample_lengths(Dataset.CHATBOT, 2000, 2048, seed=0)
    prompts = [length.num_prompt_tokens for length in lengths]
    assert max(prompts) == 1024
    assert prompts.count(1024) / len(prompts) > 0.5


def test_arrivals_come_at_the_rate_that_was_asked_for():
    arrivals = trace(Workload(Dataset.ALPACA, duration_s=1000.0), rate=4.0)
    assert len(arrivals) == pytest.approx(4000, rel=0.05)
    assert all(0.0 < arrival.time_s < 1000.0 for arrival in arrivals)


def test_the_same_seed_gives_the_same_trace_and_another_one_another():
    first, again, other = (trace(Workload(Dataset.ALPACA, 100.0, seed), 2.0) for seed in (5, 5, 6))
    assert first == again != other


def test_a_shared_prefix_stands_before_every_prompt():
    arrivals = trace(Workload(Dataset.TRANSLATION, 20.0, num_shared_tokens=80), 4.0)
    assert all(arrival.num_prompt_tokens > 80 == arrival.num_shared_tokens for arrival in arrivals)
