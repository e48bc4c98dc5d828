"""What is wrong with a request is said in OpenAI's form, before anything is accepted."""

import json

import pytest

from doubles.administrator import AdministratorDouble
from scheduler.api.app import create_app
from scheduler.core.queue_limits import QueueLimits
from scheduler.core.request import FinishReason
from scheduler.errors import QueueFull, RequestFailed, SchedulerError
from scheduler.ports import Readiness


def error_of(answer, status: int) -> dict:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(
    ("field", "value", "parts"),
    [
        ("temperature", 3, ["3", "less than or equal to 2"]),
        ("temperature", -0.5, ["-0.5", "greater than or equal to 0"]),
        ("temperature", 999999, ["999999", "2"]),
        ("temperature", "hot", ["hot", "number"]),
        ("temperature", True, ["True", "number"]),
        ("top_p", 0, ["0", "greater than 0"]),
        ("top_p", 1.1, ["1.1", "1"]),
        ("top_k", -2, ["-2", "-1"]),
        ("top_k", 2**40, [str(2**40), str(2**31 - 1)]),
        ("max_tokens", -1, ["-1", "0"]),
        ("max_tokens", 1.5, ["1.5", "integer"]),
        ("max_tokens", "8", ["8", "integer"]),
        ("max_tokens", 62, ["64", "65", "3"]),
        ("seed", 2**64, [str(2**64)]),
        ("stop", ["x"] * 17, ["16"]),
        ("stop", 5, ["5"]),
        ("stream", "yes", ["yes", "boolean"]),
        ("stream_options", {"include_usage": True}, ["stream: true"]),
        ("model", 5, ["5", "string"]),
        ("user", 5, ["5", "string"]),
        ("user", "a" * 513, ["512"]),
        ("priority", 1, ["1", "must be 0", "fcfs"]),
        ("priority", 2**31, [str(2**31), str(2**31 - 1)]),
        ("priority", 0.5, ["0.5", "integer"]),
        ("n", 0, ["0", "greater than or equal to 1"]),
        ("n", 1_000_000, ["1000000", "128"]),
        ("n", 9, ["9", "8", "may run at once"]),
        ("n", "2", ["2", "integer"]),
        ("best_of", 0, ["0", "greater than or equal to 1"]),
        ("best_of", 129, ["129", "128"]),
        ("cache_salt", "", ["at least 1 character"]),
        ("cache_salt", "a" * 257, ["256"]),
        ("cache_salt", 5, ["5", "string"]),
        ("echo", 1, ["1", "boolean"]),
        ("logprobs", -1, ["-1", "greater than or equal to 0"]),
        ("logprobs", 21, ["21", "20"]),
        ("logprobs", True, ["True", "integer"]),
        ("prompt_logprobs", -1, ["-1", "0"]),
        ("prompt_logprobs", 21, ["21", "20"]),
        ("suffix", "end", ["end", "not supported"]),
        ("min_p", -0.1, ["-0.1", "0"]),
        ("min_p", 1.1, ["1.1", "1"]),
        ("presence_penalty", 2.5, ["2.5", "2"]),
        ("frequency_penalty", -3, ["-3", "-2"]),
        ("repetition_penalty", 0, ["0", "0.01"]),
        ("repetition_penalty", 2.1, ["2.1", "2"]),
        ("logit_bias", {"5": 101}, ["101", "token 5", "100"]),
        ("logit_bias", {"5": "1"}, ["'1'", "token 5", "numbers"]),
        ("logit_bias", {"5": True}, ["True", "token 5"]),
        ("logit_bias", {"-5": 1}, ["'-5'", "token ids"]),
        ("logit_bias", {"five": 1}, ["'five'", "token ids"]),
        ("logit_bias", {"256": 1}, ["256", "255"]),
        ("logit_bias", {"5": 1, "05": 2}, ["more than once"]),
        ("logit_bias", {str(i): 1 for i in range(1025)}, ["1025", "1024"]),
        ("logit_bias", [5], ["object"]),
        ("allowed_token_ids", [], ["at least 1 item"]),
        ("allowed_token_ids", [1, 256], ["256", "255"]),
        ("stop_token_ids", [256], ["256", "255"]),
        ("stop_token_ids", list(range(129)), ["128"]),
        ("bad_words", ["x"] * 129, ["128"]),
        ("min_tokens", -1, ["-1", "0"]),
        ("min_tokens", 17, ["17", "max_tokens", "16"]),
        ("ignore_eos", "no", ["no", "boolean"]),
        ("truncate_prompt_tokens", 0, ["0", "1"]),
        ("request_id", "", ["string"]),
        ("request_id", "two words", ["two words"]),
        ("request_id", "x" * 129, ["128"]),
        ("unknown", 1, ["not a field"]),
        ("prompt", "", ["empty"]),
        ("prompt", [], ["empty"]),
        ("prompt", [[]], ["empty"]),
        ("prompt", 5, ["a string, a list of strings"]),
        ("prompt", {"a": 1}, ["a string, a list of strings"]),
        ("prompt", [True, 1], ["integers", "True"]),
        ("prompt", [1, "a"], ["integers", "'a'"]),
        ("prompt", ["a", 1], ["mixture"]),
        ("prompt", [[1], "a"], ["mixture"]),
        ("prompt", [1, -1], ["-1"]),
        ("prompt", [1, 256], ["256", "255", "position 1"]),
        ("prompt", [1, 2**31], [str(2**31)]),
        ("prompt", [1.0], ["a string, a list of strings"]),
        ("prompt", ["a"] * 1025, ["1025", "1024"]),
        ("prompt", "a" * 65, ["64", "65"]),
        ("prompt", "\ud800", ["surrogate"]),
    ],
)
async def test_a_bad_value_is_refused_by_field_value_and_limit(client, generator, field, value, parts):
    body = json.dumps({"prompt": "abc", field: value})
    answer = await client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    error = error_of(answer, 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == field
    assert error["code"]
    for part in parts:
        assert part in error["message"]
    assert generator.accepted == []


async def test_a_bad_entry_is_named_by_its_place(complete):
    assert error_of(await complete(stop=["ok", ""]), 400)["param"] == "stop.1"
    unknown = error_of(await complete(stream=True, stream_options={"more": 1}), 400)
    assert (unknown["param"], unknown["code"]) == ("stream_options.more", "unknown_field")


async def test_a_missing_prompt_is_named(client):
    for body in ({}, {"prompt": None}):
        error = error_of(await client.post("/v1/completions", json=body), 400)
        assert (error["param"], error["code"]) == ("prompt", "missing_field")


@pytest.mark.parametrize("stream", [False, True])
async def test_one_bad_prompt_refuses_the_whole_call(complete, generator, stream):
    error = error_of(await complete(prompt=["abc", "", "abc"], stream=stream), 400)
    assert "prompt 1 of 3" in error["message"]
    too_big_for_the_pool = error_of(await complete(prompt=["abc", "a" * 50], stream=stream, max_tokens=9), 400)
    assert too_big_for_the_pool["code"] == "pool_too_small"
    assert generator.accepted == []


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ({"n": 3, "best_of": 2}, ["best_of is 2", "at least n, which is 3"]),
        ({"n": 2, "best_of": 3, "stream": True}, ["best_of is 3", "stream: true", "which is 2"]),
    ],
)
async def test_best_of_must_leave_a_choice_to_make(complete, generator, body, parts):
    error = error_of(await complete(**body), 400)
    assert error["param"] == "best_of"
    assert all(part in error["message"] for part in parts)
    assert generator.accepted == []
    assert (await complete(n=2, best_of=2, stream=True)).status_code == 200


async def test_choices_that_do_not_fit_the_pool_together_are_refused_with_the_numbers(complete):
    error = error_of(await complete(prompt="a" * 10, max_tokens=15, n=3), 400)
    assert (error["param"], error["code"]) == ("max_tokens", "pool_too_small")
    for part in ("needs 14 blocks", "10 in the prompt", "3 choices of 4 blocks each", "the pool has 12"):
        assert part in error["message"]


async def test_an_unknown_model_is_not_found(complete):
    error = error_of(await complete(model="other"), 404)
    assert (error["param"], error["code"]) == ("model", "model_not_found")
    assert "'other'" in error["message"]
    assert "'echo'" in error["message"]


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (b"{", "not JSON"),
        (b"", "not JSON"),
        (b'{"prompt": "a"} x', "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN"),
        (b'{"prompt": "a", "temperature": -Infinity}', "-Infinity"),
        (b'{"prompt": "a", "temperature": 1e999}', "temperature is inf"),
        (b'{"prompt": ' + b"[" * 9_000 + b"]" * 9_000 + b"}", "nested too deeply"),
        (b'{"prompt": "a", "seed": ' + b"9" * 5_000 + b"}", "unusable number"),
    ],
)
async def test_a_body_that_is_no_json_is_refused(client, body, part):
    answer = await client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert part in error_of(answer, 400)["message"]


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_another_content_type_is_refused(client, content_type):
    headers = {} if content_type is None else {"content-type": content_type}
    answer = await client.post("/v1/completions", content=b'{"prompt": "a"}', headers=headers)
    assert "application/json" in error_of(answer, 415)["message"]


async def test_a_charset_does_not_change_the_content_type(client):
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await client.post("/v1/completions", content=b'{"prompt": "a"}', headers=headers)).status_code == 200


async def test_a_body_over_the_limit_is_refused_while_it_is_read(client):
    headers = {"content-type": "application/json"}
    announced = await client.post("/v1/completions", content=b"x" * 20_001, headers=headers)
    assert "20001" in error_of(announced, 413)["message"]
    num_read = 0

    async def endless():
        nonlocal num_read
        while True:
            num_read += 1
            yield b"x" * 1_000

    unannounced = await client.post("/v1/completions", content=endless(), headers=headers)
    assert "20000" in error_of(unannounced, 413)["message"]
    assert num_read == 21


async def test_unknown_paths_and_methods_have_the_same_form(client):
    assert "/v1/nothing" in error_of(await client.get("/v1/nothing"), 404)["message"]
    wrong_method = await client.get("/v1/completions")
    assert "GET" in error_of(wrong_method, 405)["message"]
    assert wrong_method.headers["allow"] == "POST"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_full_queue_says_when_to_come_back(complete, generator, stream):
    generator.max_accepted = 2
    generator.refusal = QueueFull("2 requests wait, which is the limit", retry_after_s=1.2)
    answer = await complete(prompt=["a", "b", "c"], stream=stream)
    assert generator.running == set()
    assert error_of(answer, 429)["code"] == "queue_full"
    assert answer.headers["retry-after"] == "2"


async def test_a_call_that_can_never_be_queued_is_not_asked_to_come_back(complete, generator):
    generator.queue = QueueLimits(max_sequences=6)
    error = error_of(await complete(prompt=["a"] * 4, n=2), 400)
    assert error["param"] == "prompt"
    assert "8 sequences in one call, but at most 6 may wait" in error["message"]
    assert not generator.accepted


@pytest.mark.parametrize("stream", [False, True])
async def test_work_that_cannot_advance_is_refused_with_the_reason(client, complete, generator, stream):
    assert (await client.get("/ready")).json() == {"ready": True, "reason": ""}
    generator.readiness = Readiness(ready=False, reason="waiting for the kvmanager")
    assert "waiting for the kvmanager" in error_of(await complete(stream=stream), 503)["message"]
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["reason"]) == (503, "waiting for the kvmanager")
    assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("prompt", ["abc", ["abc", "de"]])
@pytest.mark.parametrize("num_tokens", [0, 2])
async def test_a_failure_before_the_first_token_is_plain_and_later_an_event(complete, generator, prompt, num_tokens):
    generator.failure_after[num_tokens] = RequestFailed("the worker lost its memory")
    answer = await complete(prompt=prompt, stream=True)
    if num_tokens == 0:
        error_of(answer, 500)
    else:
        *_, failure, done, end = answer.text.split("\n\n")
        assert json.loads(failure.removeprefix("data: "))["error"]["message"] == "the worker lost its memory"
        assert (done, end) == ("data: [DONE]", "")
    assert error_of(await complete(prompt=prompt), 500)["code"] == "request_failed"
    assert generator.running == set()


async def test_a_request_that_was_ended_by_a_fault_is_no_success(complete, generator):
    generator.finish_reason = FinishReason.ERROR
    assert "a fault of the server" in error_of(await complete(), 500)["message"]


async def test_a_defect_is_an_internal_error_without_its_details(complete, generator):
    generator.failure_after[0] = SchedulerError("secret")
    assert error_of(await complete(), 500)["message"] == "internal error"
    generator.failure_after = {1: SchedulerError("secret")}
    assert "secret" not in (await complete(stream=True)).text


async def test_the_openapi_document_describes_the_request(client):
    document = (await client.get("/openapi.json")).json()
    body = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    body = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert body["properties"]["max_tokens"]["default"] == 16
    assert body["additionalProperties"] is False


async def test_a_client_that_leaves_while_it_sends_its_body_is_no_defect(service, caplog):
    received = iter([{"type": "http.request", "body": b'{"prompt"', "more_body": True}, {"type": "http.disconnect"}])
    sent = []

    async def receive():
        return next(received)

    async def send(message):
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "headers": headers}
    await create_app(service, AdministratorDouble())(scope, receive, send)
    assert sent[0]["status"] == 400
    assert b"after 9 bytes" in sent[1]["body"]
    assert "defect" not in caplog.text
