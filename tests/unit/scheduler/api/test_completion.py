import json
import threading

import pytest

from scheduler.core.request import FinishReason


def events(answer) -> list:
    blocks = answer.text.split("\n\n")
    assert blocks.pop() == ""
    assert all(block.startswith("data: ") for block in blocks)
    assert blocks.pop() == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks]


async def test_a_completion_has_the_form_of_openai(complete):
    answer = await complete(prompt="abc", max_tokens=4, model="echo")
    assert answer.status_code == 200
    body = answer.json()
    assert body.pop("id").startswith("cmpl-")
    assert body.pop("created") > 1_700_000_000
    assert body == {
        "object": "text_completion",
        "model": "echo",
        "system_fingerprint": "fp_test",
        "choices": [{"index": 0, "text": "abca", "logprobs": None, "finish_reason": "length", "stop_reason": None}],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
    }


async def test_absent_fields_and_null_mean_the_same_defaults(complete, generator):
    assert len((await complete()).json()["choices"][0]["text"]) == 16
    answer = await complete(model=None, max_tokens=None, temperature=None, stop=None, seed=None, logprobs=None, n=None)
    assert len(answer.json()["choices"][0]["text"]) == 16
    first, second = generator.accepted
    assert (first.stop, first.sampling.temperature, first.sampling.top_p, first.sampling.top_k) == (
        second.stop,
        1,
        1,
        0,
    )
    assert first.sampling.seed != second.sampling.seed


async def test_sampling_and_stop_conditions_reach_the_generator(complete, generator):
    await complete(max_tokens=5, temperature=0.5, top_p=0.25, top_k=7, seed=-1, stop=["x", "yz"], user="me")
    await complete(top_k=-1, stop="x")
    first, second = generator.accepted
    assert first.sampling.temperature == 0.5
    assert first.sampling.top_p == 0.25
    assert first.sampling.top_k == 7
    assert first.sampling.seed == 2**64 - 1
    assert first.stop.max_tokens == 5
    assert first.stop.stop == ("x", "yz")
    assert first.stop.eos_token_ids == {0}
    assert second.sampling.top_k == 0
    assert second.stop.stop == ("x",)


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("ab", ["aba"]),
        (["ab", "c", "de"], ["aba", "ccc", "ded"]),
        ([97, 98], ["aba"]),
        ([[97, 98], [99]], ["aba", "ccc"]),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_every_form_of_prompt_is_completed_in_its_order(complete, prompt, texts, stream):
    answer = await complete(prompt=prompt, max_tokens=3, stream=stream)
    if stream:
        got = [""] * len(texts)
        for event in events(answer):
            (choice,) = event["choices"]
            got[choice["index"]] += choice["text"]
    else:
        choices = answer.json()["choices"]
        assert [choice["index"] for choice in choices] == list(range(len(texts)))
        got = [choice["text"] for choice in choices]
    assert got == texts


async def test_several_prompts_are_counted_together_and_named_apart(complete, generator):
    generator.num_cached_tokens = 1
    usage = (await complete(prompt=["abc", "de"], max_tokens=2)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (5, 4, 9)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert len({request.request_id for request in generator.accepted}) == 2


async def test_chunks_of_several_prompts_interleave(complete):
    answer = await complete(prompt=["a", "b"], max_tokens=4, stream=True)
    indexes = [event["choices"][0]["index"] for event in events(answer)]
    assert sorted(indexes) == [0] * 4 + [1] * 4
    assert indexes != sorted(indexes)


async def test_choices_are_numbered_prompt_by_prompt_and_the_prompt_counts_once(complete, generator):
    body = (await complete(prompt=["a", "xy"], n=2, max_tokens=2, cache_salt="mine")).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "aa"),
        (1, "bb"),
        (2, "xy"),
        (3, "yz"),
    ]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 8)
    assert [(request.num_choices, request.cache_salt) for request in generator.accepted] == [(2, "mine")] * 2


async def test_choices_stream_interleaved_each_with_its_index_and_one_finish_reason(complete):
    answer = await complete(prompt=["a", "x"], n=2, max_tokens=3, stream=True)
    texts, ends = [""] * 4, []
    for event in events(answer):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["text"]
        ends += [choice["index"]] * (choice["finish_reason"] is not None)
    assert texts == ["aaa", "bbb", "xxx", "yyy"]
    assert sorted(ends) == [0, 1, 2, 3]


async def test_of_more_choices_than_wanted_the_most_probable_are_returned_and_all_are_counted(complete, generator):
    generator.best_choice = 2
    body = (await complete(prompt=["a", "x"], n=2, best_of=4, max_tokens=3)).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "ccc"),
        (1, "bbb"),
        (2, "zzz"),
        (3, "yyy"),
    ]
    assert body["usage"]["completion_tokens"] == 2 * 4 * 3


async def test_a_stream_ends_with_one_finish_reason_and_done(complete):
    answer = await complete(max_tokens=3, stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    chunks = events(answer)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "abc"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_comes_last_and_without_choices_when_asked_for(complete):
    answer = await complete(max_tokens=2, stream=True, stream_options={"include_usage": True})
    *chunks, last = events(answer)
    assert [chunk["usage"] for chunk in chunks] == [None, None]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_for_no_tokens_is_complete_at_once(complete, stream):
    answer = await complete(prompt=["a", "b"], max_tokens=0, stream=stream)
    if stream:
        choices = [event["choices"][0] for event in events(answer)]
    else:
        choices = answer.json()["choices"]
        assert answer.json()["usage"]["completion_tokens"] == 0
    assert [(choice["text"], choice["finish_reason"]) for choice in choices] == [("", "length")] * 2


async def test_text_is_escaped_so_that_an_event_stays_one_line(complete):
    prompt = '"\\\n\r\t\x00\u2028'
    chunks = events(await complete(prompt=[ord(c) for c in '"\\\n\r\t\x01\x7f\xff'], max_tokens=8, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == '"\\\n\r\t\x01\x7f\xff'
    assert (await complete(prompt=prompt, max_tokens=2)).status_code == 200


@pytest.mark.parametrize("name", ["echo", "default"])
async def test_the_model_may_be_called_by_either_name(complete, name):
    answer = await complete(model=name)
    assert answer.json()["model"] == "echo"


async def test_models_are_listed_and_described(client):
    listed = (await client.get("/v1/models")).json()
    card = {"id": "echo", "object": "model", "created": 1_700_000_000, "owned_by": "octavo"}
    assert listed == {"object": "list", "data": [card]}
    assert (await client.get("/v1/models/echo")).json() == card
    assert (await client.get("/v1/models/default")).json() == card
    missing = await client.get("/v1/models/some/other")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_a_finish_reason_stop_is_passed_on(complete, generator):
    generator.finish_reason = FinishReason.STOP
    assert (await complete(max_tokens=2)).json()["choices"][0]["finish_reason"] == "stop"


async def test_a_long_text_is_tokenized_beside_the_event_loop(complete, tokenizer):
    await complete(prompt="short")
    await complete(prompt=["long" * 300, "er" * 600])
    on_loop, *beside = tokenizer.threads
    assert on_loop is threading.main_thread()
    assert len(beside) == 2
    assert threading.main_thread() not in beside
