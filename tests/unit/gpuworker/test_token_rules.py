"""Token rules, all rows at once, against a naive model that takes one row and one rule at a time."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpuworker.core.history import TokenHistory
from gpuworker.core.steps import NO_TOKEN, Sample, SamplingParams, TokenRules
from gpuworker.logprobs import scores
from gpuworker.sampling import sample
from gpuworker.token_rules import apply_rules

VOCAB_SIZE = 40
EXTREMES = [
    {"temperature": 1e-9},
    {"temperature": 1e-45},
    {"temperature": 2.0, "top_p": 1e-30},
    {"temperature": 2.0, "min_p": 1.0},
    {"temperature": 1.0, "top_k": 1, "rules": TokenRules(repetition_penalty=1e-30, frequency_penalty=1e30)},
    {"temperature": 1.0, "rules": TokenRules(allowed_token_ids=(3,), bad_words=((3,),))},
    {"rules": TokenRules(allowed_token_ids=(3,), bad_words=((3,),))},
]


def mask_of(token_ids: list[int]) -> bytes:
    flags = np.isin(np.arange(VOCAB_SIZE), token_ids)
    return np.packbits(flags, bitorder="little").tobytes()


def naive(logits: list[float], rules: TokenRules, prompt: list[int], output: list[int], mask: bytes) -> list[float]:
    """The rules as docs/sampling.md states them."""
    result = [float(value) for value in logits]
    for token in range(VOCAB_SIZE):
        if rules.allowed_token_ids and token not in rules.allowed_token_ids:
            result[token] = -np.inf
        if mask and not mask[token // 8] >> token % 8 & 1:
            result[token] = -np.inf
        for word in rules.bad_words:
            before = list(word[:-1])
            if word[-1] == token and output[len(output) - len(before) :] == before:
                result[token] = -np.inf
        if len(output) < rules.min_tokens and token in rules.late_token_ids:
            result[token] = -np.inf
    for token, bias in zip(rules.biased_token_ids, rules.biases, strict=True):
        result[token] += bias
    for token in {*prompt, *output}:
        factor = rules.repetition_penalty
        result[token] = result[token] / factor if result[token] > 0 else result[token] * factor
        count = output.count(token)
        result[token] -= rules.frequency_penalty * count + (rules.presence_penalty if count else 0)
    return result


def random_rules(rng: random.Random) -> TokenRules:
    def tokens(most: int) -> tuple[int, ...]:
        return tuple(rng.sample(range(VOCAB_SIZE), rng.randint(0, most)))

    biased = tokens(5)
    return TokenRules(
        biased_token_ids=biased,
        biases=tuple(rng.uniform(-100, 100) for _ in biased),
        allowed_token_ids=rng.choice([(), tokens(20)]),
        bad_words=tuple(tuple(rng.choices(range(4), k=rng.randint(1, 3))) for _ in range(rng.randint(0, 4))),
        min_tokens=rng.choice([0, 3]),
        late_token_ids=tokens(3),
        repetition_penalty=rng.choice([1.0, 0.5, 1.7]),
        presence_penalty=rng.choice([0.0, -1.5, 2.0]),
        frequency_penalty=rng.choice([0.0, 0.7, -2.0]),
    )


def test_rows_of_different_rules_follow_the_naive_model_one_by_one():
    rng = random.Random(4)
    logits = torch.randn(120, VOCAB_SIZE, generator=torch.Generator().manual_seed(4)) * 5
    samples, expected = [], []
    for row in logits.tolist():
        prompt = rng.choices(range(4), k=rng.randint(1, 6))
        output = rng.choices(range(4), k=rng.randint(0, 6))
        rules, mask = random_rules(rng), rng.choice([b"", mask_of(rng.sample(range(VOCAB_SIZE), 9))])
        known = [*prompt, *output]
        samples.append(
            Sample(1, len(known), SamplingParams(rules=rules), len(prompt), TokenHistory(known, len(prompt)), mask)
        )
        expected.append(naive(row, rules, prompt, output, mask))
    changed = logits.clone()
    apply_rules(changed, samples)
    np.testing.assert_allclose(changed.numpy(), np.array(expected), rtol=1e-5, atol=1e-4)
    # A row is the same to the last bit whatever stands beside it.
    for row in range(0, len(samples), 7):
        alone = logits[row : row + 1].clone()
        apply_rules(alone, samples[row : row + 1])
        assert torch.equal(alone[0], changed[row])


def test_a_history_is_the_same_however_the_tokens_arrived():
    tokens = [5, 6, 5, 7, 7, 5, 8]
    whole = TokenHistory(tokens, 3)
    by_chunks = TokenHistory([], 3)
    for start, end in ((0, 2), (2, 5), (0, 4), (5, 6), (6, 7)):  # one chunk twice, as after a preemption
        by_chunks.extend(start, tokens[start:end])
    for history in (whole, by_chunks):
        assert list(history.distinct_token_ids) == [5, 6, 7, 8]
        assert list(history.output_counts) == [1, 0, 2, 1]
        assert history.output_ends_with([5, 8])
        assert not history.output_ends_with(tokens[2:]), "the prompt is no output"
        assert len(history) == 7


def test_masks_shorter_than_the_vocabulary_forbid_the_rest():
    logits = torch.zeros(1, VOCAB_SIZE)
    apply_rules(logits, [Sample(1, 1, SamplingParams(), mask=b"\x06")])
    assert logits[0].isfinite().nonzero().flatten().tolist() == [1, 2]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rules_bind_greedy_and_drawn_tokens(temperature):
    logits = torch.zeros(1, VOCAB_SIZE)

    def draw(rules: TokenRules, position: int = 9, mask: bytes = b"") -> int:
        params = SamplingParams(temperature=temperature, seed=1, rules=rules)
        return sample(logits, [Sample(1, position, params, 5, TokenHistory([1] * position, 5), mask)])[0]

    assert draw(TokenRules(allowed_token_ids=(7,))) == 7
    assert draw(TokenRules(biased_token_ids=(9,), biases=(100.0,))) == 9
    assert draw(TokenRules(), mask=mask_of([11])) == 11
    only_two = TokenRules(allowed_token_ids=(2, 3), min_tokens=5, late_token_ids=(2,))
    assert draw(only_two) == 3
    assert temperature or draw(only_two, position=10) == 2
    assert draw(TokenRules(allowed_token_ids=(2,), min_tokens=5, late_token_ids=(2,))) == NO_TOKEN


@pytest.mark.parametrize("extreme", EXTREMES)
def test_extreme_values_give_a_token_or_none_and_harm_no_neighbour(extreme):
    logits = torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(5)) * 20
    neighbours = [
        Sample(1, 4, SamplingParams(temperature=1.0, top_p=0.9, seed=8)),
        Sample(
            3,
            4,
            SamplingParams(temperature=0.7, seed=9, rules=TokenRules(presence_penalty=1.0)),
            1,
            TokenHistory([1, 2, 2, 1], 1),
        ),
    ]
    odd = Sample(2, 4, SamplingParams(seed=7, **extreme), 1, TokenHistory([1, 2, 3, 3], 1))
    first, token, last = sample(logits, [neighbours[0], odd, neighbours[1]])
    assert [first] == sample(logits[:1], neighbours[:1])
    assert [last] == sample(logits[2:], neighbours[1:])
    assert 0 <= token < VOCAB_SIZE or token == NO_TOKEN


def test_raw_logits_stay_as_they_are():
    logits = torch.randn(4, VOCAB_SIZE)
    before = logits.clone()
    rules = TokenRules(biased_token_ids=(1,), biases=(5.0,))
    sample(logits, [Sample(row, 1, SamplingParams(temperature=1.0, min_p=0.2, rules=rules)) for row in range(4)])
    assert torch.equal(logits, before)


def test_every_tensor_of_a_draw_lies_where_the_logits_do():
    """A tensor made elsewhere would lie on "meta", which nothing can be computed with."""
    rules = TokenRules(
        biased_token_ids=(1,),
        biases=(2.0,),
        bad_words=((3,), (4, 5)),
        min_tokens=9,
        late_token_ids=(6,),
        repetition_penalty=1.2,
        presence_penalty=0.1,
    )
    params = SamplingParams(temperature=1.0, top_p=0.9, top_k=20, min_p=0.01, seed=4, rules=rules)
    history = TokenHistory([1, 2, 3, 4], 2)
    samples = [Sample(1, 4, params, 2, history, mask_of(list(range(30)))), Sample(2, 4, replace(params, rules=None))]
    logits = torch.randn(2, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))
    expected = sample(logits, samples)
    with torch.device("meta"):
        token_ids = sample(logits, samples)
        told = scores(logits, token_ids, [0, 3])
    assert token_ids == expected
    assert told == scores(logits, token_ids, [0, 3])
