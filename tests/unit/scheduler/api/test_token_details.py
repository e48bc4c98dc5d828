"""Log-probabilities, ids and echo in the answers of completions."""

import json

import pytest

from scheduler.api.token_details import Offsets, token_text


def chunks_of(answer) -> list[dict]:
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert events.pop() == "[DONE]"
    return [json.loads(event)["choices"][0] for event in events]


async def test_logprobs_have_columns_that_begin_at_the_prompts_end(complete):
    (choice,) = (await complete(max_tokens=2, logprobs=2)).json()["choices"]
    assert choice["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [0, 0],
        "top_logprobs": [{"a": 0, "b": -1.0}, {"b": 0, "c": -1.0}],
        "text_offset": [3, 4],
        "token_ids": [97, 98],
        "bytes": [[97], [98]],
    }


async def test_echoed_prompts_are_scored_from_the_second_token_on(complete):
    (choice,) = (await complete(max_tokens=1, echo=True, logprobs=1)).json()["choices"]
    told = choice["logprobs"]
    assert choice["text"] == "abca"
    assert told["tokens"] == ["a", "b", "c", "a"]
    assert told["token_logprobs"] == [None, -0.5, -0.5, 0]
    assert told["top_logprobs"] == [None, {"c": 0.0, "b": -0.5}, {"d": 0.0, "c": -0.5}, {"a": 0}]
    assert told["text_offset"] == [0, 1, 2, 3]


@pytest.mark.parametrize(("num_top", "keys"), [(0, {"98"}), (2, {"98", "99", "100"})])
async def test_prompt_logprobs_are_listed_by_id(complete, num_top, keys):
    (choice,) = (await complete(max_tokens=1, prompt_logprobs=num_top)).json()["choices"]
    first, second, _ = choice["prompt_logprobs"]
    assert first is None
    assert second.keys() == keys
    assert second["98"] == {"logprob": -0.5, "decoded_token": "b"}
    assert choice["logprobs"] is None


async def test_ids_are_returned_for_every_prompt_and_choice(complete):
    choices = (await complete(prompt=["ab", "x"], n=2, max_tokens=2, return_token_ids=True)).json()["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [[97, 98]] * 2 + [[120]] * 2
    assert [choice["token_ids"] for choice in choices] == [[97, 98], [98, 99], [120, 120], [121, 121]]


async def test_a_stream_tells_the_prompt_once_for_each_choice(complete):
    fields = {"max_tokens": 2, "n": 2, "echo": True, "logprobs": 0, "prompt_logprobs": 0, "return_token_ids": True}
    whole = (await complete(**fields)).json()["choices"]
    chunks = chunks_of(await complete(stream=True, **fields))
    for index, choice in enumerate(whole):
        own = [chunk for chunk in chunks if chunk["index"] == index]
        assert "".join(chunk["text"] for chunk in own) == choice["text"]
        assert [i for chunk in own for i in chunk["token_ids"]] == choice["token_ids"]
        for column, entries in choice["logprobs"].items():
            assert [entry for chunk in own for entry in chunk["logprobs"][column]] == entries
        assert ["prompt_logprobs" in chunk for chunk in own] == [True, False]
        assert ["prompt_token_ids" in chunk for chunk in own] == [True, False]
        assert own[0]["prompt_logprobs"] == choice["prompt_logprobs"]


async def test_prompts_are_truncated_at_the_front_and_echoed_as_they_were_used(complete, generator):
    (choice,) = (await complete(max_tokens=0, echo=True, truncate_prompt_tokens=2)).json()["choices"]
    assert choice["text"] == "bc"
    await complete(prompt=[97, 98, 99], truncate_prompt_tokens=5)
    assert generator.accepted[-1].prompt_token_ids == (97, 98, 99)


async def test_rules_and_stops_reach_the_generator(complete, generator):
    await complete(
        logit_bias={"7": -1.5},
        allowed_token_ids=[5, 6, 5],
        bad_words=["x", " yz"],
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        min_p=0.1,
        min_tokens=3,
        stop_token_ids=[8],
        ignore_eos=True,
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        logprobs=4,
    )
    (request,) = generator.accepted
    rules, stop = request.sampling.rules, request.stop
    assert rules.logit_bias == ((7, -1.5),)
    assert rules.allowed_token_ids == (5, 6)
    assert rules.bad_words == ((120,), (32, 120), (32, 121, 122))
    assert (rules.repetition_penalty, rules.presence_penalty, rules.frequency_penalty) == (1.2, 0.5, -0.5)
    assert (request.sampling.min_p, request.sampling.num_top_logprobs) == (0.1, 4)
    assert (stop.min_tokens, stop.stop_token_ids, stop.ending_token_ids) == (3, {8}, {8})
    assert stop.include_stop_str_in_output
    assert not request.skip_special_tokens


async def test_a_request_id_names_the_answer(complete, generator):
    answer = await complete(request_id="mine:1")
    assert answer.json()["id"] == answer.headers["x-request-id"] == "mine:1"
    assert generator.accepted[0].request_id.startswith("mine:1")


def test_offsets_count_whole_characters_and_leave_special_tokens_out(tokenizer):
    def offsets(text: bytes, *, skip: bool) -> list[int]:
        counted = Offsets(tokenizer, 10, skip_special_tokens=skip)
        return [counted.of(byte) for byte in text]

    assert offsets("aé€b".encode(), skip=True) == [10, 11, 11, 12, 12, 12, 13]
    assert offsets(b"a\x00b", skip=True) == [10, 11, 11]
    assert offsets(b"a\x00b", skip=False) == [10, 11, 12]


def test_parts_of_characters_are_written_as_bytes():
    assert token_text("é".encode()) == "é"
    assert token_text(b"\xe2\x82") == "bytes:\\xe2\\x82"


async def test_an_echoed_prompt_leaves_a_broken_character_to_the_output(complete):
    for prompt, text in (([104, 105, 0xF0, 0x9F], "hi"), ([104, *"\ufffd".encode()], "h\ufffd")):
        (choice,) = (await complete(prompt=prompt, max_tokens=0, echo=True)).json()["choices"]
        assert choice["text"] == text
