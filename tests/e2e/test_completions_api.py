"""The REST API with the real model behind three services."""

import json
import socket
import time

import httpx
import pytest

PROMPT = "The capital of France is"


@pytest.fixture
def client(cluster):
    with httpx.Client(base_url=cluster.base_url, timeout=60, trust_env=False) as client:
        yield client


@pytest.fixture
def complete(client):
    def post(**body) -> dict:
        answer = client.post("/v1/completions", json={"temperature": 0, "prompt": PROMPT, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return post


@pytest.fixture
def stream(client):
    def post(**body) -> list[dict]:
        body = {"temperature": 0, "prompt": PROMPT, "stream": True, **body}
        with client.stream("POST", "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            lines = [line for line in answer.iter_lines() if line]
        assert lines.pop() == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    return post


def text_of(chunks: list[dict], index: int = 0) -> str:
    choices = (choice for chunk in chunks for choice in chunk["choices"])
    return "".join(choice["text"] for choice in choices if choice["index"] == index)


def test_the_model_knows_a_capital(complete):
    answer = complete(max_tokens=8)
    assert "Paris" in answer["choices"][0]["text"]
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 8


def test_a_stream_says_the_same_as_a_whole_answer(complete, stream):
    whole = complete(max_tokens=12)["choices"][0]
    chunks = stream(max_tokens=12, stream_options={"include_usage": True})
    assert text_of(chunks) == whole["text"]
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert chunks[-2]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_every_form_of_prompt_gives_the_same_text(complete):
    token_ids = [504, 3575, 282, 4649, 314]
    texts = [
        choice["text"]
        for prompt in (PROMPT, [PROMPT], token_ids, [token_ids])
        for choice in complete(prompt=prompt, max_tokens=4)["choices"]
    ]
    assert len(texts) == 4
    assert len(set(texts)) == 1


def test_several_prompts_are_answered_in_their_order(complete, stream):
    prompts = [PROMPT, "2 + 2 =", "Once upon a time"]
    alone = [complete(prompt=prompt, max_tokens=6)["choices"][0]["text"] for prompt in prompts]
    together = complete(prompt=prompts, max_tokens=6)
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in together["choices"]] == alone
    chunks = stream(prompt=prompts, max_tokens=6)
    assert [text_of(chunks, index) for index in range(3)] == alone


def test_a_seed_repeats_its_text_and_another_does_not(complete):
    def sample(seed: int) -> str:
        return complete(temperature=2, seed=seed, max_tokens=8)["choices"][0]["text"]

    first = sample(1)
    assert sample(1) == first
    assert sample(2) != first


def test_a_stop_string_ends_the_text_and_is_not_part_of_it(complete, stream):
    text = complete(max_tokens=12)["choices"][0]["text"]
    stop = text[8:12]
    choice = complete(max_tokens=12, stop=stop)["choices"][0]
    assert choice["text"] == text[: text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert text_of(stream(max_tokens=12, stop=[stop, "never"])) == choice["text"]


@pytest.mark.parametrize("prompt", ["日本の首都は", "🍋🍋🍋🍋", "e\u0301e\u0301e\u0301"])
def test_no_chunk_holds_a_broken_character(complete, stream, prompt):
    chunks = stream(prompt=prompt, max_tokens=12)
    assert text_of(chunks) == complete(prompt=prompt, max_tokens=12)["choices"][0]["text"]
    assert "\ufffd" not in "".join(chunk["choices"][0]["text"] for chunk in chunks[:-1])


def test_no_tokens_are_generated_for_max_tokens_0(complete, stream):
    answer = complete(max_tokens=0)
    assert answer["choices"][0]["text"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0
    assert text_of(stream(max_tokens=0)) == ""


@pytest.mark.parametrize("streamed", [False, True])
def test_a_request_over_the_context_is_refused_with_the_numbers(client, streamed):
    body = {"prompt": PROMPT, "max_tokens": 5000, "stream": streamed}
    answer = client.post("/v1/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "max_tokens")
    for number in ("2048", "5000", "5"):
        assert number in error["message"]


def test_the_model_is_listed_under_its_served_name(client, cluster, complete):
    (card,) = client.get("/v1/models").json()["data"]
    assert complete(max_tokens=1, model=card["id"])["model"] == card["id"]
    assert complete(max_tokens=1, model="default")["model"] == card["id"]
    assert client.post("/v1/completions", json={"prompt": PROMPT, "model": "other"}).status_code == 404


def test_it_lives_and_is_ready(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"ready": True, "reason": ""}


@pytest.mark.parametrize("streamed", [False, True])
def test_clients_that_go_away_give_their_memory_back(cluster, complete, streamed):
    address = httpx.URL(cluster.base_url)
    # More than may run at once, each of minutes: if they stayed, the next one would wait that long for a place.
    for _ in range(80):
        body = json.dumps({"prompt": "Count: 1 2 3", "max_tokens": 1900, "stream": streamed}).encode()
        head = "POST /v1/completions HTTP/1.1\r\nhost: octavo\r\ncontent-type: application/json\r\n"
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.02)
    start_s = time.monotonic()
    complete(max_tokens=2)
    assert time.monotonic() - start_s < 30
