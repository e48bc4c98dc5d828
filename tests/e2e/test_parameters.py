"""Every parameter of completions through the official client."""

import asyncio

import openai
import pytest

from doubles.tiny_llama import naive_logits, twin
from gpuworker.weights.loading import open_weights
from scheduler.adapters.tokenizer import load_tokenizer

PROMPT = "The capital of France is"
MAX_ERROR = 1e-4


@pytest.fixture(scope="module")
def client(cluster):
    with openai.OpenAI(base_url=f"{cluster.base_url}/v1", api_key="unused", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def tokenizer(model_path):
    return load_tokenizer(model_path)


@pytest.fixture(scope="module")
def reference(model_path):
    return twin(open_weights(model_path))


@pytest.fixture
def complete(client):
    """A completion; what the client does not know goes in ``extra``."""

    def create(extra=None, **fields):
        body = {"model": "default", "prompt": PROMPT, "max_tokens": 8, "temperature": 0} | fields
        return client.completions.create(extra_body=extra or {}, **body)

    return create


@pytest.fixture
def text(complete):
    return lambda **fields: complete(**fields).choices[0].text


def ids_of(completion) -> list[int]:
    return completion.choices[0].model_extra["token_ids"]


def test_logprobs_of_prompt_and_output_are_those_of_transformers(complete, tokenizer, reference):
    told = complete({"prompt_logprobs": 2}, echo=True, logprobs=3).choices[0]
    prompt = tokenizer.encode(PROMPT)
    columns = told.logprobs
    ids = columns.model_extra["token_ids"]
    assert ids[: len(prompt)] == prompt
    expected = naive_logits(reference, ids).double().log_softmax(-1)
    assert columns.token_logprobs[0] is None
    assert columns.top_logprobs[0] is None
    for i in range(1, len(ids)):
        assert abs(columns.token_logprobs[i] - expected[i - 1, ids[i]].item()) < MAX_ERROR
        best = expected[i - 1].topk(3).values.tolist()
        assert sorted(columns.top_logprobs[i].values(), reverse=True)[:3] == pytest.approx(best, abs=MAX_ERROR)
    assert told.text.startswith(PROMPT)
    assert "".join(columns.tokens) == told.text
    for token, offset in zip(columns.tokens, columns.text_offset, strict=True):
        assert told.text.startswith(token, offset)
    assert b"".join(map(bytes, columns.model_extra["bytes"])).decode() == told.text
    first, *rest = told.model_extra["prompt_logprobs"]
    assert first is None
    for i, entry in enumerate(rest, start=1):
        assert entry[str(ids[i])]["logprob"] == columns.token_logprobs[i]
        assert len(entry) in (2, 3)


def test_logprobs_zero_has_empty_tops_and_offsets_from_the_prompts_end(complete):
    told = complete(logprobs=0).choices[0]
    assert told.logprobs.top_logprobs == [{}] * 8
    assert told.logprobs.text_offset[0] == len(PROMPT)
    assert all(logprob <= 0 for logprob in told.logprobs.token_logprobs)


def test_max_tokens_zero_scores_the_prompt_or_says_nothing(complete, tokenizer):
    told = complete(max_tokens=0, echo=True, logprobs=1)
    assert (told.choices[0].text, told.choices[0].finish_reason) == (PROMPT, "length")
    assert told.usage.completion_tokens == 0
    assert len(told.choices[0].logprobs.tokens) == len(tokenizer.encode(PROMPT))
    assert complete(max_tokens=0, echo=True).choices[0].text == PROMPT
    assert complete(max_tokens=0).choices[0].text == ""
    assert complete(max_tokens=0, logprobs=1).choices[0].logprobs.tokens == []


@pytest.mark.parametrize("fields", [{"logprobs": 2, "echo": True}, {"logprobs": 1, "stop": ["France is Paris, a"]}, {}])
def test_a_stream_adds_up_to_the_whole(complete, fields):
    extra = {"return_token_ids": True}
    whole = complete(extra, **fields).choices[0]
    chunks = [chunk.choices[0] for chunk in complete(extra, stream=True, **fields)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert [i for chunk in chunks for i in chunk.model_extra["token_ids"]] == whole.model_extra["token_ids"]
    assert chunks[0].model_extra["prompt_token_ids"] == whole.model_extra["prompt_token_ids"]
    assert chunks[-1].finish_reason == whole.finish_reason
    if whole.logprobs is not None:
        for column in ("tokens", "token_logprobs", "text_offset"):
            joined = [entry for chunk in chunks for entry in getattr(chunk.logprobs, column)]
            assert joined == getattr(whole.logprobs, column)


def test_stops_by_string_token_and_end_of_sequence(complete, tokenizer):
    plain = ids_of(complete({"return_token_ids": True}))
    word = tokenizer.decode(plain[2:4])
    told = complete(stop=[word]).choices[0]
    assert (told.finish_reason, told.model_extra["stop_reason"]) == ("stop", word)
    assert told.text == tokenizer.decode(plain[:2])
    assert complete({"include_stop_str_in_output": True}, stop=[word]).choices[0].text == told.text + word
    by_id = complete({"stop_token_ids": [plain[2]]}).choices[0]
    assert (by_id.text, by_id.finish_reason, by_id.model_extra["stop_reason"]) == (told.text, "stop", plain[2])
    later = complete({"stop_token_ids": [plain[2]], "min_tokens": 5, "return_token_ids": True})
    assert plain[2] not in ids_of(later)[:5]
    assert later.usage.completion_tokens >= 5


def test_the_end_of_sequence_has_no_reason_and_can_be_ignored(complete, tokenizer):
    (end,) = tokenizer.encode("<|im_end|>")
    forced = {"allowed_token_ids": [end], "return_token_ids": True}
    told = complete(forced, max_tokens=1)  # on the very last token
    assert (told.choices[0].finish_reason, told.choices[0].model_extra["stop_reason"]) == ("stop", None)
    assert (told.choices[0].text, ids_of(told)) == ("", [end])
    ignored = complete(forced | {"ignore_eos": True}, max_tokens=3)
    assert (ignored.choices[0].finish_reason, ids_of(ignored)) == ("length", [end] * 3)
    shown = complete(forced | {"ignore_eos": True, "skip_special_tokens": False}, max_tokens=3)
    assert shown.choices[0].text == "<|im_end|>" * 3
    assert complete(forced | {"min_tokens": 2}, max_tokens=3).choices[0].finish_reason == "stop"  # nothing can be drawn


def test_rules_choose_tokens(complete, text, tokenizer):
    plain = ids_of(complete({"return_token_ids": True}))
    (other,) = tokenizer.encode(" London")[:1]
    assert ids_of(complete({"return_token_ids": True}, logit_bias={str(other): 100}))[0] == other
    assert ids_of(complete({"return_token_ids": True}, logit_bias={str(plain[0]): -100}))[0] != plain[0]
    allowed = {"allowed_token_ids": [*plain[:1], other], "return_token_ids": True}
    assert set(ids_of(complete(allowed))) <= {plain[0], other}
    assert "Paris" in text()
    assert "Paris" not in text(extra={"bad_words": ["Paris"]}, max_tokens=32)
    repeated = text(prompt="a a a a a a a a", max_tokens=16)
    for field, value in (("presence_penalty", 2), ("frequency_penalty", 2)):
        assert text(prompt="a a a a a a a a", max_tokens=16, **{field: value}) != repeated
    assert text(extra={"repetition_penalty": 2.0}, prompt="a a a a a a a a", max_tokens=16) != repeated


def test_narrow_distributions_are_greedy(text):
    for extra in ({"top_k": 1}, {"min_p": 1.0}):
        assert text(extra=extra, temperature=1.5, seed=3) == text()
    assert text(temperature=1.5, top_p=1e-6, seed=3) == text()
    assert text(temperature=1e-9, seed=3) == text()


async def test_a_seeded_request_is_unchanged_by_neighbours(cluster):
    async with openai.AsyncOpenAI(base_url=f"{cluster.base_url}/v1", api_key="unused", max_retries=0) as client:

        async def texts(**fields) -> list[str]:
            body = {"model": "default", "prompt": PROMPT, "max_tokens": 8, "temperature": 1.2} | fields
            return [choice.text for choice in (await client.completions.create(**body)).choices]

        extreme = {"repetition_penalty": 2.0, "min_p": 0.9}
        alone = await texts(seed=5, n=3)
        together, *_ = await asyncio.gather(
            texts(seed=5, n=3), texts(), texts(temperature=2, extra_body=extreme), texts(frequency_penalty=-2)
        )
    assert together == alone
    assert len(set(alone)) == 3


def test_prompts_are_truncated_at_their_front_and_ids_are_returned(complete, tokenizer):
    told = complete({"truncate_prompt_tokens": 2, "return_token_ids": True}, echo=True).choices[0]
    kept = tokenizer.encode(PROMPT)[-2:]
    assert told.model_extra["prompt_token_ids"] == kept
    assert told.text.startswith(tokenizer.decode(kept))
    assert complete({"add_special_tokens": False}).choices[0].text == complete().choices[0].text


def test_a_request_id_names_the_answer_and_cannot_be_used_twice_at_once(complete):
    assert complete({"request_id": "mine-1"}).id == "mine-1"
    with complete({"request_id": "mine-2"}, stream=True, max_tokens=400) as stream:
        next(iter(stream))
        with pytest.raises(openai.APIStatusError) as refused:
            complete({"request_id": "mine-2"})
    assert refused.value.status_code in (400, 409)
    assert "mine-2" in refused.value.message


def test_ids_outside_the_vocabulary_are_named(complete):
    for extra in ({"stop_token_ids": [10**6]}, {"allowed_token_ids": [10**6]}, {"logit_bias": {str(10**6): 1}}):
        with pytest.raises(openai.BadRequestError) as refused:
            complete(extra)
        assert refused.value.param == next(iter(extra))
        assert "1000000" in refused.value.message
    with pytest.raises(openai.BadRequestError, match="suffix"):
        complete(suffix="end")
