"""The commands, called as a person calls them."""

import json
import re
import socket
from http.server import BaseHTTPRequestHandler

import pytest
from typer.testing import CliRunner

from octavo.data_folder import ClusterState, DataFolder, RunningService
from octavo.main import app

runner = CliRunner()


def octavo(*words: str, **environment: str):
    return runner.invoke(app, list(words), env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb", **environment})


@pytest.fixture
def api(serve):
    """An API that answers every completion with what the test puts into ``answer``."""

    class Api(BaseHTTPRequestHandler):
        answer = (200, "text/event-stream", "")
        asked = None

        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def do_POST(self):
            Api.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, kind, body = Api.answer
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *words):
            pass

    Api.url = serve(Api)
    return Api


def events(*texts: str) -> str:
    pieces = [json.dumps({"choices": [{"index": 0, "text": text}]}) for text in texts]
    return "".join(f"data: {piece}\n\n" for piece in [*pieces, "[DONE]"])


@pytest.fixture
def running(tmp_path, api):
    """A data folder on which only the API runs; Redis has gone."""
    folder = DataFolder(tmp_path)
    services = (
        RunningService(name="redis", pid=11, address="redis://127.0.0.1:1", log="/l/redis.log", restarts=2),
        RunningService(name="scheduler", pid=12, address=api.url, log="/l/scheduler.log", restarts=0),
    )
    with folder.locked():
        folder.write_state(ClusterState(pid=10, base_url=api.url, services=services))
        yield str(tmp_path)


def test_every_flag_of_up_has_a_variable_and_an_explanation():
    shown = octavo("up", "--help").output
    flags = set(re.findall(r"--([a-z-]+)", shown)) - {"help", "example"}
    for flag in flags - {"data-dir"}:
        assert f"OCTAVO_{flag.upper().replace('-', '_')}" in shown
    assert {"port", "host", "model", "redis", "block-size", "kv-memory", "max-num-batched-tokens", "threads"} <= flags
    assert "Tokens per block." in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--block-size", "0"), r"'--block-size'.*0 is too small; the least is 1"),
        (("--port", "70000"), r"'--port'.*70000 is too large; the most is 65535"),
        (("--kv-memory", "lots"), r"'--kv-memory'.*'lots' is not a size"),
        (("--block-size", f"-{10**400}"), r"'--block-size'.*0 is too small; the least is 1"),
        (("--queue-timeout", "nan"), r"'--queue-timeout'.*nan is no finite number"),
        (("--drain-timeout", "inf"), r"'--drain-timeout'.*inf is no finite number"),
        (("--dtype", "int3"), r"'--dtype'.*'int3' is not one of"),
        (("--model", "no-such-model"), r"--model no-such-model: no such file or folder"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name_value_and_limit(tmp_path, words, message):
    result = octavo("up", "--data-dir", str(tmp_path), "--port", "0", *words)
    assert result.exit_code != 0
    assert re.search(message, " ".join(result.output.split()))


def test_a_setting_can_come_from_a_variable(tmp_path):
    result = octavo("up", "--data-dir", str(tmp_path), OCTAVO_BLOCK_SIZE="-3")
    assert "-3 is too small; the least is 1" in result.output


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = octavo("up", "--data-dir", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert "Address already in use" in result.output
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.parametrize("command", ["status", "down"])
def test_without_a_cluster_that_is_said(tmp_path, command):
    result = octavo(command, "--data-dir", str(tmp_path))
    assert result.exit_code == 1
    assert "No cluster runs on" in result.output


def test_the_status_names_every_service_and_what_is_wrong(running):
    result = octavo("status", "--data-dir", running)
    assert result.exit_code == 1
    redis, scheduler = result.output.splitlines()[1:3]
    assert redis.split()[:4] == ["redis", "11", "no", "no"]
    assert "(Connect call failed" in redis
    assert scheduler.split()[:5] == ["scheduler", "12", "yes", "yes", "0"]


def test_the_status_can_be_read_by_programs(running, api):
    shown = json.loads(octavo("status", "--json", "--data-dir", running).output)
    assert shown["base_url"] == api.url
    assert [(service["name"], service["ready"]) for service in shown["services"]] == [
        ("redis", False),
        ("scheduler", True),
    ]


def test_a_probe_says_ready_not_ready_or_nobody_there_by_its_exit_code(api):
    assert octavo("probe", api.url).exit_code == 0
    nobody = octavo("probe", "127.0.0.1:1", "--timeout", "0.5")
    assert (nobody.exit_code, nobody.output.startswith("not ready:")) == (2, True)


def test_a_completion_is_shown_behind_its_prompt(running, api):
    api.answer = (200, "text/event-stream", events(" Paris", ".", " [x]"))
    result = octavo("complete", "The capital [of France] is", "--data-dir", running, "--max-tokens", "5", "--stop", ";")
    assert "The capital [of France] is Paris. [x]" in result.output
    assert (api.asked["max_tokens"], api.asked["stream"], api.asked["temperature"]) == (5, True, 0.0)
    assert api.asked["stop"] == ";"


def test_the_apis_own_message_is_shown_when_it_refuses(api):
    api.answer = (400, "application/json", json.dumps({"error": {"message": "max_tokens is 9 [limit 8]"}}))
    result = octavo("complete", "x", "--url", api.url)
    assert result.exit_code == 1
    assert "max_tokens is 9 [limit 8]" in result.output


@pytest.mark.parametrize("body", ["<html>", "[]", '{"error": "text"}'])
def test_an_answer_that_is_not_the_apis_is_shown_as_it_is(api, body):
    api.answer = (502, "text/html", body)
    result = octavo("complete", "x", "--url", api.url)
    assert (result.exit_code, f"HTTP 502: {body}" in result.output) == (1, True)


def test_an_error_inside_a_stream_is_an_error(api):
    api.answer = (200, "text/event-stream", events("half") + 'data: {"error": {"message": "it broke"}}\n\n')
    result = octavo("complete", "x", "--url", api.url)
    assert (result.exit_code, "error: it broke" in result.output.splitlines()) == (1, True)


def test_an_api_that_is_not_there_is_named():
    result = octavo("complete", "x", "--url", "http://127.0.0.1:1")
    assert (result.exit_code, "http://127.0.0.1:1" in result.output) == (1, True)


def test_the_catalogue_is_listed_with_what_was_fetched(tmp_path):
    listed = octavo("model", "list", OCTAVO_CACHE_DIR=str(tmp_path)).output
    assert re.search(r"smollm2-135m-instruct .* 98 MB +no", listed)


def test_fetching_an_unknown_model_names_the_known_ones():
    result = octavo("model", "fetch", "gpt-9")
    assert (result.exit_code, "'gpt-9' is not in the catalogue; known: smollm2" in result.output) == (1, True)
