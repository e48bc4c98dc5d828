"""A beam search over the API finds what `generate(num_beams=4)` of `transformers` finds on the same float32 weights."""

import json
from pathlib import Path

import httpx
import pytest
import torch

from doubles.tiny_llama import twin
from gpuworker.weights.loading import open_weights
from scheduler.adapters.tokenizer import load_tokenizer

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = Path(__file__).parent.parent / "data" / "prompts" / "self_instruct.jsonl"
NUM_PROMPTS = 10
NUM_BEAMS = 4
NUM_TOKENS = 12
MAX_PROMPT_TOKENS = 40
VARIANTS = [
    {"length_penalty": 1.0, "early_stopping": False},
    {"length_penalty": 2.0, "early_stopping": "never"},
    {"length_penalty": 0.0, "early_stopping": True},
    {"length_penalty": -1.0, "early_stopping": False},
]
CASES = [(index, VARIANTS[0]) for index in range(NUM_PROMPTS)]
CASES += [(index, VARIANTS[1 + index % 3]) for index in range(NUM_PROMPTS)]

Found = list[tuple[list[int], float]]


@pytest.fixture(scope="module")
def tokenizer(model_path):
    return load_tokenizer(model_path)


@pytest.fixture(scope="module")
def prompts(tokenizer) -> list[list[int]]:
    lines = PROMPTS.read_text(encoding="utf-8").splitlines()[:NUM_PROMPTS]
    return [tokenizer.encode(json.loads(line)["prompt"])[:MAX_PROMPT_TOKENS] for line in lines]


@pytest.fixture(scope="module")
def stops(tokenizer) -> list[int]:
    """Ends of sentences, lines and clauses, so that hypotheses end before the others."""
    return [tokenizer.encode(text, add_special_tokens=False)[0] for text in (".", "\n", ",")]


@pytest.fixture(scope="module")
def expected(model_path, tokenizer, prompts, stops) -> list[Found]:
    """By ``CASES``."""
    reference = twin(open_weights(model_path))
    ending = [*tokenizer.eos_token_ids, *stops]
    return [transformers_search(reference, prompts[index], ending, variant) for index, variant in CASES]


def transformers_search(reference, prompt: list[int], ending: list[int], variant: dict) -> Found:
    token_ids = torch.tensor([prompt])
    result = reference.generate(
        token_ids,
        attention_mask=torch.ones_like(token_ids),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        num_beams=NUM_BEAMS,
        num_return_sequences=NUM_BEAMS,
        eos_token_id=ending,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **variant,
    )
    outputs = [row[len(prompt) :] for row in result.sequences.tolist()]
    ends = [next((i + 1 for i, token in enumerate(row) if token in ending), len(row)) for row in outputs]
    return list(
        zip((row[:end] for row, end in zip(outputs, ends, strict=True)), result.sequences_scores.tolist(), strict=True)
    )


def ask(cluster, prompts: list[list[int]], **more: object) -> list[dict]:
    """The choices of all prompts."""
    body = {
        "prompt": prompts,
        "use_beam_search": True,
        "beam_width": NUM_BEAMS,
        "n": NUM_BEAMS,
        "max_tokens": NUM_TOKENS,
        "return_token_ids": True,
        **more,
    }
    answer = httpx.post(f"{cluster.base_url}/v1/completions", json=body, timeout=120, trust_env=False)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def found_for_cases(cluster, prompts: list[list[int]], stops: list[int]) -> list[Found]:
    """What the cluster finds for every case; the prompts of one variant are searched side by side."""
    found: dict[int, Found] = {}
    for variant in VARIANTS:
        cases = [number for number, (_, wanted) in enumerate(CASES) if wanted is variant]
        choices = ask(cluster, [prompts[CASES[number][0]] for number in cases], stop_token_ids=stops, **variant)
        for place, number in enumerate(cases):
            mine = choices[place * NUM_BEAMS : (place + 1) * NUM_BEAMS]
            found[number] = [(choice["token_ids"], choice["beam_score"]) for choice in mine]
    return [found[number] for number in range(len(CASES))]


def assert_same(found: list[Found], expected: list[Found]) -> None:
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        assert [output for output, _ in mine] == [output for output, _ in theirs], CASES[number]
        assert [score for _, score in mine] == pytest.approx([score for _, score in theirs], abs=1e-3), CASES[number]


def test_all_results_of_10_prompts_are_those_of_transformers(cluster, prompts, stops, expected):
    assert any(len(output) < NUM_TOKENS for results in expected for output, _ in results)
    assert any(len(output) == NUM_TOKENS for results in expected for output, _ in results)
    assert_same(found_for_cases(cluster, prompts, stops), expected)


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_they_are_the_same_in_a_pool_that_preempts(start_cluster, prompts, stops, expected, mode):
    cluster = start_cluster(block_size=4, num_device_blocks=40, num_host_blocks=200, preemption_mode=mode)
    assert_same(found_for_cases(cluster, prompts, stops), expected)
    log = (cluster.data_dir / "logs" / "scheduler.log").read_text()
    assert f"gives way by {mode}:" in log


def test_texts_scores_and_logprobs_agree(cluster, prompts, tokenizer):
    choices = ask(cluster, prompts[:1], n=2, logprobs=2, min_tokens=NUM_TOKENS)
    assert [choice["index"] for choice in choices] == [0, 1]
    assert choices[0]["beam_score"] >= choices[1]["beam_score"]
    for choice in choices:
        logprobs = choice["logprobs"]
        assert choice["beam_score"] == pytest.approx(sum(logprobs["token_logprobs"]) / NUM_TOKENS, abs=1e-6)
        assert choice["text"] == "".join(logprobs["tokens"])
        assert choice["finish_reason"] == "length"
