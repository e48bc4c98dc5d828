"""When requests are sent, and what a server's misbehaviour becomes."""

import asyncio
import json
import re
from http.server import BaseHTTPRequestHandler

import pytest
import tokenizers

from octavo.bench.client import Answer, CompletionsClient
from octavo.bench.gauges import kv_use_of
from octavo.bench.load import Clock, send_all
from octavo.bench.records import RequestRecord
from octavo.bench.server import Server, discover, open_session
from octavo.bench.tokenizers import open_tokenizer
from octavo.bench.workload import RequestShape, Workload, own
from octavo.errors import BenchFailed


def shapes(*arrivals_s):
    return tuple(RequestShape((own(i, 4),), 2, arrival_s) for i, arrival_s in enumerate(arrivals_s))


class Sending:
    """Takes 30 ms for each request and notes when it was sent and how many were open."""

    def __init__(self):
        self.clock = Clock()
        self.most_open = self.num_open = 0

    async def __call__(self, prompt, num_prompt_tokens, num_output_tokens):
        sent_s = self.clock()
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        await asyncio.sleep(0.03)
        self.num_open -= 1
        return RequestRecord(sent_s, self.clock(), (), num_prompt_tokens, num_output_tokens, num_output_tokens)


async def test_a_closed_loop_keeps_as_many_requests_open_as_it_may():
    send, ended = Sending(), []
    workload = Workload("w", shapes(*[0.0] * 9), max_concurrency=3)
    records = await send_all(workload, [""] * 9, send, send.clock, ended.append)
    assert send.most_open == 3
    assert len(records) == len(ended) == 9


async def test_an_open_loop_sends_at_the_times_of_arrival_however_many_are_open():
    send = Sending()
    workload = Workload("w", shapes(0.0, 0.01, 0.05, 0.05, 0.05), max_concurrency=None)
    records = await send_all(workload, [""] * 5, send, send.clock, lambda _: None)
    for shape, record in zip(workload.shapes, records, strict=True):
        assert record.sent_s >= shape.arrival_s
    assert send.most_open >= 3


def test_text_that_speaks_of_the_end_is_not_the_end():
    answer = Answer()
    answer.receive(b'data: {"choices":[{"text":"[DONE]"}]}\n\ndata: [DONE]\n\n', 1.0)
    assert answer.chunk_times_s == [1.0]


def test_an_event_that_arrives_in_pieces_counts_when_it_is_whole():
    answer = Answer()
    answer.receive(b'data: {"choices":[{"text":" a"}]}\n\ndata: {"cho', 1.0)
    answer.receive(b'ices":[{"text":" b"}]}\n\n', 2.0)
    answer.receive(b'data: {"choices":[{"text":""}],"usage":{"completion_tokens":2}}\n\ndata: [DONE]\n\n', 3.0)
    assert answer.chunk_times_s == [1.0, 2.0]  # what brings no text is no token
    assert answer.usage == {"completion_tokens": 2}
    assert not answer.error


class Api(BaseHTTPRequestHandler):
    """Answers as the test's ``behaviour`` says."""

    behaviour = "whole"
    asked: list[dict]

    def do_GET(self):
        self.answer(200, json.dumps({"data": [{"id": "tiny"}]}))

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).asked.append(body)
        if self.path == "/detokenize":
            self.answer(404, "{}")
        elif self.path == "/tokenize":
            known = {"content"} if self.behaviour == "llama.cpp" else {"prompt"}
            self.answer(200 if known & set(body) else 404, json.dumps({"tokens": [5, 6, 7, 8, 9, 1, 2, 3, 4]}))
        elif "min_tokens" in body and self.behaviour in ("strict", "llama.cpp"):
            self.answer(422, json.dumps({"error": "min_tokens is unknown"}))
        elif not body.get("stream"):
            count = len(body["prompt"]) if self.behaviour != "text only" else 99
            self.answer(200, json.dumps({"usage": {"prompt_tokens": count}}))
        else:
            self.stream()

    def stream(self):
        pieces = ['data: {"choices":[{"text":" a"}]}\n\n', 'data: {"choices":[{"text":" b"}]}\n\n']
        if self.behaviour == "busy":
            return self.answer(429, '{"error": {"message": "queue is full"}}')
        if self.behaviour == "fails":
            pieces[1] = 'data: {"error": {"message": "out of memory"}}\n\n'
        length = 4096 if self.behaviour == "breaks off" else len("".join(pieces))
        return self.answer(200, "".join(pieces), length)

    def answer(self, status, text, length=None):
        self.send_response(status)
        self.send_header("Content-Length", str(length or len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def api(serve):
    Api.behaviour, Api.asked = "whole", []
    Api.url = serve(Api)
    return Api


async def completed(api, behaviour) -> RequestRecord:
    api.behaviour = behaviour
    async with open_session(api.url, None) as session:
        server = Server(api.url, "tiny", frozenset({"ignore_eos"}))
        return await CompletionsClient(session, server, Clock()).complete("Once", 7, 2)


async def test_a_server_without_usage_is_taken_to_send_each_token_by_itself(api):
    record = await completed(api, "whole")
    assert (record.num_prompt_tokens, record.num_output_tokens, record.error) == (7, 2, "")
    assert len(record.chunk_times_s) == 2
    assert api.asked[-1] == {
        "model": "tiny",
        "prompt": "Once",
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [("busy", "HTTP 429: .*queue is full"), ("fails", "out of memory"), ("breaks off", "[Pp]ayload|[Cc]losed")],
)
async def test_whatever_a_server_does_wrong_becomes_an_error_of_the_record(api, behaviour, message):
    record = await completed(api, behaviour)
    assert re.search(message, record.error)


async def test_a_server_that_is_not_there_becomes_an_error_of_the_record():
    async with open_session("http://127.0.0.1:9", None) as session:
        record = await CompletionsClient(session, Server("http://127.0.0.1:9", "m"), Clock()).complete("a", 1, 1)
    assert "127.0.0.1:9" in record.error


@pytest.mark.parametrize(
    ("behaviour", "fields", "takes_ids"),
    [
        ("whole", {"ignore_eos", "min_tokens"}, True),
        ("strict", {"ignore_eos"}, True),
        ("llama.cpp", {"ignore_eos"}, True),
        ("text only", {"ignore_eos", "min_tokens"}, False),
    ],
)
async def test_what_a_server_takes_is_found_out_by_asking(api, behaviour, fields, takes_ids):
    api.behaviour = behaviour
    async with open_session(api.url, None) as session:
        server = await discover(session, api.url, None, "some text")
    assert (server.model, server.length_fields, server.takes_token_ids) == ("tiny", fields, takes_ids)
    assert server.corpus == (5, 6, 7, 8, 9, 1, 2, 3, 4)


async def test_a_server_that_does_not_answer_is_named():
    unused = "http://127.0.0.1:9"
    async with open_session(unused, None) as session:
        with pytest.raises(BenchFailed, match=r"127\.0\.0\.1:9 does not answer"):
            await discover(session, unused, None, "text")


async def test_a_tokenizer_may_be_another_server_s_or_a_folder_s(api, tmp_path):
    library = tokenizers.Tokenizer(tokenizers.models.WordLevel({"to": 0, "be": 1}, unk_token="to"))
    library.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    library.save(str(tmp_path / "tokenizer.json"))
    of_folder = open_tokenizer(str(tmp_path))
    assert of_folder.encode("be to be") == [1, 0, 1]
    assert of_folder.decode([0, 1]) == "to be"
    of_server = open_tokenizer(api.url)
    assert await asyncio.to_thread(of_server.encode, "some text") == [5, 6, 7, 8, 9, 1, 2, 3, 4]
    with pytest.raises(BenchFailed, match=f"--tokenizer {api.url}: .*404"):
        await asyncio.to_thread(of_server.decode, [5])


def test_a_folder_without_a_tokenizer_is_named(tmp_path):
    with pytest.raises(BenchFailed, match="there is no tokenizer"):
        open_tokenizer(str(tmp_path))


def test_the_use_of_kv_memory_is_read_from_the_metrics_of_servers_that_tell():
    octavo = """octavo_pool_blocks{pool="w",state="used",tier="device"} 3.0
octavo_pool_blocks{pool="w",tier="device",state="cached"} 4.0
octavo_pool_blocks{pool="w",tier="device",state="free"} 5.0
octavo_pool_blocks{pool="w",state="used",tier="host"} 9.0
"""
    assert kv_use_of(octavo) == 0.25
    assert kv_use_of('vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n') == 0.5
    assert kv_use_of("process_cpu_seconds_total 7.0\n") is None
