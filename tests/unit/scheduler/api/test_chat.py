"""`POST /v1/chat/completions` and what a conversation becomes."""

import json
from dataclasses import replace

import httpx
import pytest

from doubles.administrator import AdministratorDouble
from doubles.chat import GrammarCompilerDouble, LineTemplate
from scheduler.api.answers import ChatCompletionAnswer, ChatCompletionChunk
from scheduler.api.app import create_app
from scheduler.core.limits import Limits

HELLO = [{"role": "user", "content": "Hi"}]
PROMPT = "user: Hi\nassistant: "


@pytest.fixture(params=[LineTemplate()])
async def client(request, service, generator):
    generator.limits = Limits(max_model_len=256, vocab_size=256, block_size=4, num_device_blocks=32, max_num_seqs=8)
    app = create_app(replace(service, grammars=GrammarCompilerDouble()), AdministratorDouble(), template=request.param)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        yield client


@pytest.fixture
def chat(client):
    async def post(**body) -> httpx.Response:
        return await client.post("/v1/chat/completions", json={"messages": HELLO, **body})

    return post


def events(response: httpx.Response) -> list[dict]:
    *lines, done = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert done == "[DONE]"
    return [ChatCompletionChunk.model_validate_json(line) and json.loads(line) for line in lines]


async def refusal(chat, **body) -> dict:
    response = await chat(**body)
    assert response.status_code == 400, response.text
    return response.json()["error"]


async def test_the_answer_is_openais(chat, generator):
    answer = (await chat(max_tokens=4)).json()
    ChatCompletionAnswer.model_validate(answer)
    assert answer["id"].startswith("chatcmpl-")
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "user", "refusal": None}
    assert answer["usage"]["prompt_tokens"] == len(PROMPT)
    assert bytes(generator.accepted[0].prompt_token_ids).decode() == PROMPT


async def test_content_may_be_parts_of_text_and_a_name_is_told(chat, generator):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    await chat(max_tokens=1, messages=[{"role": "user", "content": parts, "name": "Ann"}])
    assert bytes(generator.accepted[0].prompt_token_ids).decode().startswith("Ann: one\ntwo\n")


async def test_without_max_tokens_the_rest_of_the_context_and_the_pool_is_there(chat, generator):
    await chat()
    assert generator.accepted[-1].stop.max_tokens == 32 * 4 + 1 - len(PROMPT)
    await chat(n=2)
    assert generator.accepted[-1].stop.max_tokens < 64
    generator.limits = replace(generator.limits, max_model_len=len(PROMPT) + 3)
    await chat()
    assert generator.accepted[-1].stop.max_tokens == 3
    generator.limits = replace(generator.limits, max_model_len=len(PROMPT))
    assert "context" in (await refusal(chat))["message"]


async def test_both_names_of_max_tokens_are_known_and_must_agree(chat, generator):
    await chat(max_completion_tokens=3)
    await chat(max_completion_tokens=3, max_tokens=3)
    assert [request.stop.max_tokens for request in generator.accepted] == [3, 3]
    assert (await refusal(chat, max_completion_tokens=3, max_tokens=4))["param"] == "max_tokens"


async def test_a_stream_begins_with_the_role_and_ends_with_the_reason(chat):
    response = await chat(max_tokens=4, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    first, *middle, last, usage = events(response)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in middle) == "user"
    assert last["choices"][0]["delta"] == {}
    assert last["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 4
    assert first["usage"] is None


async def test_every_choice_has_its_role_its_content_and_one_reason(chat):
    whole = (await chat(max_tokens=3, n=2)).json()["choices"]
    chunks = [chunk["choices"][0] for chunk in events(await chat(max_tokens=3, n=2, stream=True))]
    for index in range(2):
        mine = [chunk for chunk in chunks if chunk["index"] == index]
        assert mine[0]["delta"]["role"] == "assistant"
        assert [chunk["finish_reason"] for chunk in mine if chunk["finish_reason"]] == ["length"]
        text = "".join(chunk["delta"].get("content", "") for chunk in mine)
        assert text == whole[index]["message"]["content"]


async def test_logprobs_name_tokens_by_text_and_bytes(chat):
    answer = (await chat(max_tokens=2, logprobs=True, return_token_ids=True)).json()
    ChatCompletionAnswer.model_validate(answer)
    choice = answer["choices"][0]
    entries = choice["logprobs"]["content"]
    assert [(entry["token"], entry["bytes"]) for entry in entries] == [("u", [117]), ("s", [115])]
    assert choice["token_ids"] == [117, 115]
    assert bytes(answer["prompt_token_ids"]).decode() == PROMPT
    chunks = events(await chat(max_tokens=2, logprobs=True, return_token_ids=True, stream=True))
    streamed = [chunk["choices"][0]["logprobs"] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [entry for logprobs in streamed for entry in logprobs["content"]] == entries


async def test_what_asks_for_nothing_is_accepted(chat):
    response = await chat(
        max_tokens=1, user="u", metadata={"a": "b"}, store=False, tools=[], tool_choice="none", modalities=["text"],
        service_tier="auto", response_format={"type": "text"}, audio=None,
    )  # fmt: skip
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "auto"),
        ("functions", [{"name": "f"}]),
        ("audio", {"voice": "alloy", "format": "mp3"}),
        ("modalities", ["audio"]),
        ("store", True),
        ("reasoning_effort", "high"),
        ("top_logprobs", 3),
        ("metadata", {"a": 1}),
        ("chat_template", "{{ 1 }}"),
        ("best_of", 2),
        ("temperature", 3),
        ("continue_final_message", True),
        ("messages", []),
        ("messages", [{"role": "user"}]),
        ("messages", [{"role": "robot", "content": "x"}]),
        ("messages", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        ("messages", [{"role": "user", "content": []}]),
        ("messages", [{"role": "user", "content": "x", "extra": 1}]),
        ("messages", [{"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}]),
        ("messages", [{"role": "user", "content": "refuse"}]),
        ("response_format", {"type": "xml"}),
        ("response_format", {"type": "json_schema"}),
        ("response_format", {"type": "json_object", "json_schema": {"name": "a", "schema": {}}}),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}),
        ("regex", "("),
        ("grammar", "("),
    ],
)
async def test_what_is_not_served_is_refused_by_name(chat, generator, field, value):
    error = await refusal(chat, **{field: value})
    assert error["param"].split(".")[0] == field
    assert field in error["message"]
    assert generator.accepted == []


async def test_a_part_that_is_no_text_is_named(chat):
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]
    error = await refusal(chat, messages=[{"role": "user", "content": content}])
    assert error["param"] == "messages.0.content"
    assert error["message"] == "messages.0.content has part 1 of type 'image_url', but only text is supported"


@pytest.mark.parametrize("client", [None], indirect=True)
async def test_a_model_without_a_template_says_so(chat):
    error = await refusal(chat)
    assert error["code"] == "no_chat_template"
    assert "no chat template" in error["message"]


async def test_a_grammar_reaches_the_engine_from_both_routes(chat, client, generator):
    await chat(max_tokens=1, response_format={"type": "json_object"})
    schema = {"name": "a", "schema": {"type": "integer"}, "strict": True}
    await chat(max_tokens=1, response_format={"type": "json_schema", "json_schema": schema})
    await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1, "regex": "a+"})
    await client.post("/v1/completions", json={"prompt": ["a", "b"], "max_tokens": 1, "grammar": "start: x"})
    texts = [request.constraint.grammar.text for request in generator.accepted]
    assert texts == ['{"type":"object"}', '{"type": "integer"}', "a+", "start: x", "start: x"]
    assert (await refusal(chat, regex="a", grammar="b"))["param"] == "grammar"


async def test_a_conversation_is_tokenized_as_it_would_be_prompted(client):
    answer = (await client.post("/tokenize", json={"messages": HELLO, "return_token_strs": True})).json()
    assert bytes(answer["tokens"]).decode() == PROMPT
    assert answer["count"] == len(PROMPT) == len(answer["token_strs"])
    assert answer["max_model_len"] == 256


async def test_a_text_is_tokenized_and_comes_back(client):
    answer = (await client.post("/tokenize", json={"prompt": "naïve"})).json()
    assert answer["token_strs"] is None
    back = await client.post("/detokenize", json={"tokens": answer["tokens"]})
    assert back.json() == {"prompt": "naïve"}
    long = (await client.post("/tokenize", json={"prompt": "a" * 5000})).json()
    assert long["count"] == 5000


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"prompt": "half a pair: \ud800"}, "prompt"),
        ("/tokenize", {"messages": 3}, "messages"),
        ("/detokenize", {"tokens": [256]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
    ],
)
async def test_what_cannot_be_tokenized_is_refused_by_name(client, path, body, param):
    response = await client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_another_model_is_not_there(client):
    for path, body in (
        ("/tokenize", {"prompt": "a"}),
        ("/tokenize", {"messages": HELLO}),
        ("/detokenize", {"tokens": []}),
    ):
        assert (await client.post(path, json=body | {"model": "other"})).status_code == 404


async def test_the_version_is_told(client):
    assert (await client.get("/version")).json()["version"]


async def test_a_schema_of_any_depth_has_an_answer(client):
    for depth in (100, *range(800, 1000, 10), 50_000):
        text = '{"a":' * depth + "1" + "}" * depth
        body = json.dumps({"messages": HELLO, "max_tokens": 1}).removesuffix("}")
        body += f', "response_format": {{"type": "json_schema", "json_schema": {{"name": "a", "schema": {text}}}}}}}'
        response = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        assert response.status_code in (200, 400, 413), response.text
