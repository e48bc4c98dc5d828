"""Tokens and log-probabilities of the C++ sampler are those of the reference in torch, for every rule."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from doubles.isas import runnable_isas
from gpuworker.core.batch import Batch
from gpuworker.core.history import TokenHistory
from gpuworker.core.steps import NO_TOKEN, Drawn, Sample, SamplingParams, TokenRules
from gpuworker.errors import KernelInputError, LogitsNotFinite
from gpuworker.library import KernelLibrary
from gpuworker.logprobs import scores
from gpuworker.native.sampling import Sampling
from gpuworker.sampling import sample

VOCAB_SIZES = [1, 17, 64, 1000, 4097]


@pytest.fixture(params=runnable_isas())
def library(request: pytest.FixtureRequest) -> Iterator[KernelLibrary]:
    loaded = KernelLibrary()
    loaded.select_isa(request.param)
    yield loaded
    loaded.select_isa("auto")


def batch_of(samples: Sequence[Sample], scored: Sequence[int] = (), num_top: Sequence[int] = ()) -> Batch:
    """Each sample from a row of its own, then each scored token."""
    rows = range(len(samples) + len(scored))
    return Batch((), (), (), (0,), (), (), rows, rows[: len(samples)], samples, scored, num_top)


def draw(library: KernelLibrary, batch: Batch, logits: torch.Tensor) -> Drawn:
    sampling = Sampling(batch, logits.shape[1])
    sampling.params.logits = logits.data_ptr()
    library.check(library.sample(sampling.params))
    return sampling.drawn()


def drawn(library: KernelLibrary, logits: torch.Tensor, samples: Sequence[Sample]) -> Drawn:
    return draw(library, batch_of(samples), logits)


def random_logits(num_rows: int, vocab_size: int, seed: int, deviation: float = 3.0) -> torch.Tensor:
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * deviation


def random_rules(numbers: random.Random, vocab_size: int) -> tuple[TokenRules, TokenHistory]:
    def some(count: int) -> list[int]:
        return numbers.sample(range(vocab_size), min(count, vocab_size))

    biased = some(numbers.choice([0, 3]))
    rules = TokenRules(
        biased_token_ids=biased,
        biases=[numbers.uniform(-4, 4) for _ in biased],
        allowed_token_ids=some(numbers.choice([0, 0, 9])),
        bad_words=[(token_id,) for token_id in some(2)] + [(some(1)[0], token_id) for token_id in some(2)],
        min_tokens=numbers.choice([0, 50]),
        late_token_ids=some(2),
        repetition_penalty=numbers.choice([1.0, 1.3, 0.7]),
        presence_penalty=numbers.choice([0.0, 0.6]),
        frequency_penalty=numbers.choice([0.0, -0.4]),
    )
    return rules, TokenHistory([numbers.randrange(vocab_size) for _ in range(30)], 12)


def random_mask(numbers: random.Random, vocab_size: int) -> bytes:
    return bytes(numbers.getrandbits(8) for _ in range((vocab_size + 7) // 8))


def random_sample(numbers: random.Random, vocab_size: int) -> Sample:
    rules, history = random_rules(numbers, vocab_size) if numbers.random() < 0.5 else (None, None)
    params = SamplingParams(
        temperature=numbers.choice([0.0, 0.4, 1.0, 1.7]),
        top_p=numbers.choice([1.0, 1.0, 0.95, 0.5, 0.01, 0.0]),
        top_k=numbers.choice([0, 0, 1, 7, 60, 900, 100_000]),
        min_p=numbers.choice([0.0, 0.0, 0.01, 0.3, 1.0]),
        seed=numbers.getrandbits(64),
        choice_index=numbers.randrange(4),
        num_top_logprobs=min(numbers.choice([0, 0, 1, 20, 200]), vocab_size),
        rules=rules,
    )
    mask = random_mask(numbers, vocab_size) if numbers.random() < 0.3 else b""
    return Sample(1, numbers.randrange(12, 2**31), params, 12, history, mask)


def assert_same(library: KernelLibrary, logits: torch.Tensor, samples: Sequence[Sample]) -> None:
    native = drawn(library, logits, samples)
    token_ids = sample(logits, samples)
    assert native.token_ids == token_ids
    num_top = [entry.params.num_top_logprobs for entry in samples]
    expected = scores(logits, token_ids, num_top)
    assert native.scores.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert native.scores.num_top == expected.num_top
    assert list(native.scores.top_token_ids) == list(expected.top_token_ids)
    assert native.scores.top_logprobs == pytest.approx(expected.top_logprobs, abs=1e-5)


@pytest.mark.parametrize("vocab_size", VOCAB_SIZES)
def test_mixed_parameters_give_the_tokens_and_scores_of_the_reference(library: KernelLibrary, vocab_size: int) -> None:
    numbers = random.Random(vocab_size)
    samples = [random_sample(numbers, vocab_size) for _ in range(150)]
    assert_same(library, random_logits(len(samples), vocab_size, vocab_size), samples)


ALONE = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "flat": {"temperature": 30.0},
    "temperature that is hardly any": {"temperature": 1e-40},
    "top_k": {"top_k": 40},
    "top_k of more than there are blocks of tokens": {"top_k": 3000},
    "top_p": {"top_p": 0.9},
    "top_p of nearly all": {"top_p": 0.9999},
    "min_p": {"min_p": 0.02},
    "all three": {"top_k": 500, "top_p": 0.8, "min_p": 0.001},
    "most probable tokens": {"num_top_logprobs": 150},
}


@pytest.mark.parametrize("params", ALONE.values(), ids=ALONE)
def test_each_parameter_gives_the_tokens_of_the_reference(library: KernelLibrary, params: dict[str, float]) -> None:
    chosen = SamplingParams(**{"temperature": 1.0, "seed": 5, **params})  # type: ignore[arg-type]
    samples = [Sample(1, position, chosen) for position in range(12)]
    assert_same(library, random_logits(12, 32_003, 1), samples)


RULES = {
    "biases": TokenRules(biased_token_ids=[3, 70], biases=[9.0, -2.0]),
    "allowed tokens": TokenRules(allowed_token_ids=[5, 71, 6]),
    "bad words": TokenRules(bad_words=[(4,), (8, 9), (9, 4)]),
    "tokens that come too early": TokenRules(min_tokens=9, late_token_ids=[0, 1, 2]),
    "repetition": TokenRules(repetition_penalty=1.5),
    "presence": TokenRules(presence_penalty=1.5),
    "frequency": TokenRules(frequency_penalty=-0.5),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_each_rule_gives_the_tokens_of_the_reference(
    library: KernelLibrary, rules: TokenRules, temperature: float
) -> None:
    history = TokenHistory([1, 2, 3, 3, 7, 8, 8], 3)
    params = SamplingParams(temperature=temperature, seed=11, rules=rules)
    samples = [Sample(1, 7 + position, params, 3, history) for position in range(40)]
    assert_same(library, random_logits(40, 75, 4, deviation=1.0), samples)


def test_a_mask_and_allowed_tokens_leave_what_both_allow(library: KernelLibrary) -> None:
    mask = np.packbits(np.arange(75) % 3 == 0, bitorder="little").tobytes()
    params = SamplingParams(rules=TokenRules(allowed_token_ids=[1, 6, 7]))
    logits = random_logits(1, 75, 4)
    assert drawn(library, logits, [Sample(1, 0, params, mask=mask)]).token_ids == [6]
    assert_same(library, logits, [Sample(1, 0, SamplingParams(temperature=1.0), mask=mask)])


def test_the_first_of_equals_is_taken(library: KernelLibrary) -> None:
    logits = torch.zeros(2, 300)
    logits[1, [200, 299]] = 2.0
    assert drawn(library, logits, [Sample(1, 0, SamplingParams())] * 2).token_ids == [0, 200]


@pytest.mark.parametrize("top", [{"top_k": 3}, {"top_p": 0.5}, {}], ids=["top_k", "top_p", "all"])
def test_draws_follow_the_probabilities_and_ties_are_kept(library: KernelLibrary, top: dict[str, float]) -> None:
    """0.25 and 0.25 are tied with the last one that either keeps."""
    probabilities = torch.tensor([0.4, 0.25, 0.06, 0.25, 0.04])
    params = SamplingParams(temperature=1.0, seed=3, **top)  # type: ignore[arg-type]
    samples = [Sample(1, position, params) for position in range(20_000)]
    token_ids = drawn(library, probabilities.log().expand(20_000, -1).contiguous(), samples).token_ids
    counts = torch.bincount(torch.tensor(token_ids), minlength=5)
    kept = probabilities * (probabilities > 0.2) if top else probabilities
    expected = kept / kept.sum() * 20_000
    assert counts[kept == 0].sum() == 0
    assert ((counts - expected)[kept > 0] ** 2 / expected[kept > 0]).sum() < 20.5  # 4 degrees of freedom, p < 0.001


def test_a_row_without_an_allowed_token_says_so(library: KernelLibrary) -> None:
    rules = TokenRules(allowed_token_ids=[2], bad_words=[(2,)])
    result = drawn(library, torch.zeros(1, 5), [Sample(1, 0, SamplingParams(temperature=1.0, rules=rules))])
    assert (result.token_ids, result.scores.logprobs) == ([NO_TOKEN], [0.0])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 63, 64, 130])
def test_rows_that_are_not_finite_are_named(library: KernelLibrary, bad: float, place: int) -> None:
    logits = random_logits(4, 131, 1)
    logits[1, place] = bad
    logits[2] = -torch.inf
    logits[3, 5] = -torch.inf  # never, and no fault
    with pytest.raises(LogitsNotFinite) as caught:
        drawn(library, logits, [Sample(1, 0, SamplingParams(temperature=1.0))] * 4)
    assert list(caught.value.row_indexes) == [1, 2]


def test_known_tokens_are_scored_beside_the_drawn_ones(library: KernelLibrary) -> None:
    logits = random_logits(5, 200, 2)
    logits[4, 7] = torch.nan
    params = SamplingParams(num_top_logprobs=2)
    result = draw(library, batch_of([Sample(1, 0, params)] * 2, [9, 199, 3], [0, 5, 0]), logits)
    expected = scores(logits[2:], [9, 199, 3], [0, 5, 0])
    assert result.scored.logprobs == pytest.approx(expected.logprobs, abs=1e-5, nan_ok=True)
    assert list(result.scored.top_token_ids) == list(expected.top_token_ids)
    assert list(result.scores.top_token_ids) == logits[:2].topk(2).indices.flatten().tolist()


def test_choices_draw_from_the_logits_they_share(library: KernelLibrary) -> None:
    logits = random_logits(2, 200, 6, deviation=0.5)
    params = SamplingParams(temperature=1.0, seed=8)
    samples = [Sample(1, 4, replace(params, choice_index=index)) for index in range(5)] + [Sample(2, 4, params)]
    batch = replace(batch_of(samples), logit_rows=[0, 0, 0, 0, 0, 1])
    assert draw(library, batch, logits).token_ids == sample(logits[[0, 0, 0, 0, 0, 1]], samples)


def test_neighbours_and_threads_leave_every_bit_alone(library: KernelLibrary) -> None:
    numbers = random.Random(3)
    samples = [random_sample(numbers, 1000) for _ in range(20)]
    logits = random_logits(20, 1000, 7)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    together = drawn(library, logits, samples)
    torch.set_num_threads(1)
    alone = [drawn(library, logits[[row]], [samples[row]]) for row in range(20)]
    torch.set_num_threads(before)
    assert [one.token_ids[0] for one in alone] == together.token_ids
    assert [one.scores.logprobs[0] for one in alone] == together.scores.logprobs


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (TokenRules(allowed_token_ids=[75]), r"allowed_token_ids\[0\] is 75, must be in 0\.\.74"),
        (TokenRules(bad_words=[(-1,)]), r"forbidden_token_ids\[0\] is -1, must be in 0\.\.74"),
        (TokenRules(biased_token_ids=[80], biases=[1.0]), r"biased_token_ids\[0\] is 80, must be in 0\.\.74"),
    ],
)
def test_a_bad_rule_is_named_with_its_limit(library: KernelLibrary, rules: TokenRules, message: str) -> None:
    with pytest.raises(KernelInputError, match=message):
        drawn(library, torch.zeros(1, 75), [Sample(1, 0, SamplingParams(rules=rules))])
