"""Tokens that the native step draws, against the reference on the same logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from doubles.native_step import Chunk, native_executor, ragged, scattered
from doubles.tiny_llama import random_llama, write_gguf
from gpuworker.core.history import TokenHistory
from gpuworker.core.steps import NO_TOKEN, SamplingParams, Scores, TokenRules
from gpuworker.errors import LogitsNotFinite
from gpuworker.logprobs import scores
from gpuworker.sampling import sample
from gpuworker.weights.loading import open_weights

PROMPT = [(37 * index + 11) % 96 for index in range(20)]
RULES = TokenRules(
    biased_token_ids=(3, 50),
    biases=(4.0, -2.5),
    bad_words=((7,), (PROMPT[-2], 9), (PROMPT[-1], 30)),
    min_tokens=30,
    late_token_ids=(2, 5),
    repetition_penalty=1.3,
    presence_penalty=0.4,
    frequency_penalty=0.2,
)
ONLY = TokenRules(allowed_token_ids=(4, 40, 41))
KINDS = [
    SamplingParams(),
    SamplingParams(num_top_logprobs=5),
    SamplingParams(temperature=0.9, seed=7),
    SamplingParams(temperature=0.9, seed=7, choice_index=3),
    SamplingParams(temperature=1.3, seed=2**63 + 5, top_p=0.8, num_top_logprobs=2),
    SamplingParams(temperature=1.1, seed=9, top_k=12),
    SamplingParams(temperature=1.1, seed=10, min_p=0.1),
    SamplingParams(temperature=0.7, seed=11, rules=RULES),
    SamplingParams(temperature=0.0, rules=RULES, num_top_logprobs=3),
    SamplingParams(temperature=2.0, seed=12, rules=ONLY),
]


@pytest.fixture
def executor(tmp_path, monkeypatch):
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path / "cache"))
    return native_executor(open_weights(write_gguf(random_llama(), tmp_path / "tiny.gguf")), num_threads=2)


def batch_of(params):
    chunks = [Chunk([*PROMPT[row:], row], len(PROMPT) - row + 1, scattered(16 * row, 64)) for row in range(len(params))]
    batch = ragged(chunks, params)
    samples = [
        replace(entry, history=TokenHistory(chunk.context, 5), num_prompt_tokens=5)
        for entry, chunk in zip(batch.samples, chunks, strict=True)
    ]
    return replace(batch, samples=samples)


def assert_same_scores(actual: Scores, expected: Scores) -> None:
    assert list(actual.num_top) == list(expected.num_top)
    assert actual.top_token_ids == expected.top_token_ids
    assert actual.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert actual.top_logprobs == pytest.approx(expected.top_logprobs, abs=1e-5)


def test_tokens_and_scores_are_those_of_the_reference(executor):
    batch = batch_of(KINDS)
    masked = replace(batch.samples[2], mask=bytes([0b10101010]) * 12)
    batch = replace(batch, samples=[*batch.samples[:2], masked, *batch.samples[3:]])
    logits = torch.from_numpy(executor.logits(batch))
    drawn = executor.compute(batch)
    expected = sample(logits, batch.samples)
    assert drawn.token_ids == expected
    assert drawn.token_ids[2] % 2 == 1
    assert drawn.token_ids[-1] in ONLY.allowed_token_ids
    num_top = [entry.params.num_top_logprobs for entry in batch.samples]
    assert_same_scores(drawn.scores, scores(logits, expected, num_top))
    assert drawn.scored == Scores([], (), [], [])


def test_several_choices_are_drawn_from_one_row_of_logits(executor):
    chosen = [replace(KINDS[2], choice_index=index) for index in range(8)]
    batch = batch_of([chosen[0], SamplingParams()])
    first, last = batch.samples
    samples = [*(replace(first, params=params) for params in chosen), last]
    batch = replace(batch, samples=samples, logit_rows=[0] * 8 + [1])
    logits = torch.from_numpy(executor.logits(batch))
    tokens = executor.compute(batch).token_ids
    assert tokens == sample(logits[batch.logit_rows], samples)
    assert len(set(tokens[:8])) > 1


@pytest.mark.parametrize("num_scored", [3, 150])  # fewer and more than are sampled at a time
def test_known_tokens_are_scored_beside_those_that_are_drawn(executor, num_scored):
    batch = batch_of([SamplingParams(num_top_logprobs=1), KINDS[2]])
    rows = [index % len(batch.token_ids) for index in range(num_scored)]
    known = [(5 * index + 1) % 96 for index in range(num_scored)]
    num_top = [index % 3 for index in range(num_scored)]
    batch = replace(batch, sample_rows=[*batch.sample_rows, *rows], scored_token_ids=known, scored_num_top=num_top)
    logits = torch.from_numpy(executor.logits(batch))
    drawn = executor.compute(batch)
    assert drawn.token_ids == sample(logits[:2], batch.samples)
    assert_same_scores(drawn.scores, scores(logits[:2], drawn.token_ids, [1, 0]))
    assert_same_scores(drawn.scored, scores(logits[2:], known, num_top))


def test_where_rules_forbid_every_token_there_is_none(executor):
    batch = batch_of([SamplingParams(), SamplingParams(rules=TokenRules(allowed_token_ids=(4,), bad_words=((4,),)))])
    drawn = executor.compute(batch)
    assert drawn.token_ids[0] < 96
    assert drawn.token_ids[1] == NO_TOKEN
    assert drawn.scores.logprobs[1] == 0.0


def test_logits_that_are_not_finite_are_named_by_sample(executor):
    batch = batch_of([SamplingParams(), SamplingParams(), KINDS[2]])
    executor.compute(batch)
    pool = np.frombuffer(executor._device_pool.memory, np.float32).reshape(512, -1)
    pool[batch.block_tables[1][0]] = np.nan
    decode = ragged([Chunk([*PROMPT[row:], row, 5], 1, scattered(16 * row, 64)) for row in range(3)], KINDS[:3])
    samples = [decode.samples[0], *decode.samples[1:2] * 2, decode.samples[2]]
    with pytest.raises(LogitsNotFinite, match=r"rows \[1, 2\]"):
        executor.compute(replace(decode, samples=samples, logit_rows=[0, 1, 1, 2]))


def test_a_batch_that_samples_nothing_writes_its_kv(executor):
    batch = ragged([Chunk(PROMPT, len(PROMPT), scattered(0, 64))])
    assert executor.compute(replace(batch, sample_rows=())).token_ids == []
    alone = executor.logits(ragged([Chunk([*PROMPT, 3], 1, scattered(0, 64))]))
    whole = executor.logits(ragged([Chunk([*PROMPT, 3], len(PROMPT) + 1, scattered(32, 64))]))
    assert np.array_equal(alone, whole)
