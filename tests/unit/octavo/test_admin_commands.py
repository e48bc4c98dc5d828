"""The commands that look into KV memory, on an admin API that answers with one small pool."""

import io
import json
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from rich.console import Console
from typer.testing import CliRunner

from doubles import administrator as known
from octavo.cli.replay import step_through
from octavo.data_folder import ClusterState, DataFolder
from octavo.main import app
from octavo.pool_picture import picture
from scheduler import inspection as view

KEY = "the key of this folder"


class AdminApi:
    """Answers by path; ``asked`` are the calls in order."""

    def __init__(self) -> None:
        child = view.PrefixNode("cd" * 32, known.HASH, 3, 0, False, 8)
        root = view.PrefixNode(known.HASH, None, 2, 1, True, 9)
        self.asked: list[tuple[str, str, dict]] = []
        self.audit = view.Audit("w0", 9, 7, [], [], 12, 2)
        self.answers = {
            "/pools": view.PoolList([known.POOL]),
            "/pools/default": known.POOL,
            "/pools/default/map": known.MAP,
            "/sequences/1": known.TABLE,
            "/prefixes": view.PrefixPage([child, root], 2, None, 9),
            "/steps": view.StepList([known.STEP]),
            "/replay": view.Replay(2, 9, known.STEP, known.POOL, [known.TABLE], known.MAP),
        }

    def answer(self, method: str, path: str, query: dict, key: str) -> tuple[int, dict]:
        self.asked.append((method, path, query))
        if key != f"Bearer {KEY}":
            return 401, {"error": {"message": "the admin key is missing or wrong"}}
        if path == "/audit":
            return 200, asdict(self.audit)
        if path == "/sharing":
            first = "start" not in query
            return 200, asdict(
                view.Sharing(6, 4, 1 / 3, known.BLOCKS[:1] if first else known.BLOCKS[1:2], 1 if first else None, 9)
            )
        if path == "/pools/default/blocks":
            start = int(query["start"])
            return 200, asdict(view.BlockPage(known.BLOCKS[start : start + 3], start + 3 if start < 5 else None, 9))
        if path in self.answers:
            return 200, asdict(self.answers[path])
        return 404, {"error": {"message": f"{path} is not there"}}


@pytest.fixture
def api(serve):
    api = AdminApi()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            path = url.path.removeprefix("/admin/v1")
            status, body = api.answer(self.command, path, query, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        do_POST = do_GET  # noqa: N815 (the name is the library's)

        def log_message(self, *words):
            pass

    api.url = serve(Handler)
    return api


@pytest.fixture
def octavo(tmp_path, api, monkeypatch):
    """Runs a command on a folder in which a cluster runs."""
    monkeypatch.delenv("OCTAVO_ADMIN_KEY", raising=False)
    folder = DataFolder(tmp_path)

    def run(*words: str, **environment: str):
        terminal = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        return CliRunner().invoke(app, [*words, "--data-dir", str(tmp_path)], env=terminal | environment)

    with folder.locked():
        monkeypatch.setenv("OCTAVO_ADMIN_KEY", KEY)
        folder.make_admin_key()
        monkeypatch.delenv("OCTAVO_ADMIN_KEY")
        folder.write_state(ClusterState(pid=1, base_url=api.url, services=()))
        yield run


def test_pools_are_told_in_words(octavo):
    shown = octavo("pools")
    assert shown.exit_code == 0, shown.output
    for part in (
        "3 used, 2 cached, 1 pinned (budget 2) of 8",
        "1 recomputed, 2 swapped",
        "20 of 80 prompt tokens (25%)",
    ):
        assert part in shown.output


def test_blocks_are_a_picture_of_the_pool(octavo, api):
    shown = octavo("blocks")
    assert shown.exit_code == 0, shown.output
    assert "▓██▒▒···" in shown.output
    assert "one cell is one block" in shown.output
    assert api.asked[-1][2]["tier"] == "device"


def test_blocks_of_one_state_are_listed_over_all_pages(octavo, api):
    shown = octavo("blocks", "--state", "used", "--tier", "host", "--json")
    assert [block["block_id"] for block in json.loads(shown.output)["blocks"]] == list(range(8))
    assert api.asked[-1][2] == {"state": "used", "tier": "host", "start": "6", "limit": "1000"}
    assert "step 2" in octavo("blocks", "--state", "used").output


def test_a_sequences_table_is_logical_to_physical(octavo):
    lines = octavo("blocks", "--sequence", "1").output.splitlines()
    assert lines[0].startswith("sequence 1: 9 slots on the device")
    assert [line.split()[:3] for line in lines[2:4]] == [["0", "2", "1"], ["1", "0", "1"]]


def test_the_prefix_tree_draws_a_chain_on_one_level(octavo):
    shown = octavo("blocks", "--tree").output
    assert "2 cached blocks" in shown
    assert "abababababab…cdcdcdcdcdcd  blocks 2, 3  (count 1, step 8, pinned)" in shown


def test_sharing_tells_what_it_saves(octavo):
    assert "6 table entries on 4 blocks: sharing saves 33.3%" in octavo("blocks", "--sharing").output
    assert len(json.loads(octavo("blocks", "--sharing", "--json").output)["blocks"]) == 2


def test_only_one_view_at_a_time(octavo):
    assert octavo("blocks", "--tree", "--sharing").exit_code == 2


def test_steps_say_who_gave_way_and_why(octavo):
    shown = octavo("steps", "--count", "5").output
    assert "group 2 gave way (swap): group 1 needs 1 blocks and 0 are free" in shown
    assert "groups 3 entered; 1 blocks swapped out; blocks 5 evicted" in shown


def test_an_audit_that_finds_nothing_ends_with_zero(octavo):
    shown = octavo("audit")
    assert (shown.exit_code, "memory, Redis and the worker agree" in shown.output) == (0, True)


def test_an_audit_that_finds_something_ends_with_one(octavo, api):
    api.audit = view.Audit(
        "w0", 9, 7, [view.Finding("redis", "entry 3 [of] the journal is missing")], ["worker: away"], 12, 2
    )
    shown = octavo("audit")
    assert shown.exit_code == 1
    assert "redis" in shown.output
    assert "entry 3 [of] the journal is missing" in shown.output
    assert octavo("audit", "--json").exit_code == 1


def test_an_audit_that_could_not_compare_ends_with_two(octavo, api):
    api.audit = view.Audit("w0", 9, 7, [], ["worker: away"], 12, 2)
    shown = octavo("audit")
    assert (shown.exit_code, "not compared: worker: away" in shown.output) == (2, True)


def test_a_replay_shows_one_step_where_nobody_can_press_keys(octavo, api):
    shown = octavo("replay", "--step", "4")
    assert shown.exit_code == 0, shown.output
    assert "the journal reaches from 2 to 9" in shown.output
    assert "sequence 1 on the device: 9 slots in blocks 2 0" in shown.output
    assert api.asked[-1][2]["step"] == "4"
    assert json.loads(octavo("replay", "--json").output)["first_step_id"] == 2


def test_keys_step_on_and_back_within_the_journals_reach():
    fetched = []

    def fetch(step_id: int) -> dict:
        step_id = step_id or 9
        fetched.append(step_id)
        past = asdict(view.Replay(8, 9, None, known.POOL, [], known.MAP))
        past["pool"]["last_step_id"] = step_id
        return past

    step_through(fetch, 0, iter("npppnxq"), Console(file=io.StringIO(), width=80))
    assert fetched == [9, 8, 9]


def test_a_wrong_key_is_shown_in_the_apis_words(octavo):
    shown = octavo("pools", OCTAVO_ADMIN_KEY="another key of sixteen")
    assert shown.exit_code == 1
    assert "the admin key is missing or wrong" in shown.output


@pytest.mark.parametrize("url", ["x", "http://", "http://127.0.0.1:99999", "http://[::1", "ftp://127.0.0.1"])
def test_an_address_that_is_none_is_refused_before_anybody_is_asked(tmp_path, url):
    shown = CliRunner().invoke(app, ["pools", "--data-dir", str(tmp_path), "--url", url], env={"COLUMNS": "200"})
    assert shown.exit_code == 2
    assert f"{url!r} is no address of an API" in shown.output


def test_without_a_cluster_the_folder_is_named(tmp_path):
    shown = CliRunner().invoke(app, ["pools", "--data-dir", str(tmp_path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 1
    assert f"No cluster runs on {tmp_path}" in shown.output


def test_the_admin_key_is_made_once_and_for_its_owner_alone(tmp_path, monkeypatch):
    monkeypatch.delenv("OCTAVO_ADMIN_KEY", raising=False)
    folder = DataFolder(tmp_path)
    key = folder.make_admin_key()
    assert len(key) >= 32
    assert folder.make_admin_key() == folder.read_admin_key() == key
    assert (tmp_path / "admin.key").stat().st_mode & 0o777 == 0o600


def test_large_pools_are_drawn_in_buckets():
    drawn = {
        "blocks_per_cell": 10,
        "num_blocks": 45,
        "num_used": [10, 6, 1, 0, 3],
        "num_shared": [8, 0, 0, 0, 0],
        "num_cached": [0, 0, 9, 2, 2],
        "num_pinned": [0, 0, 0, 0, 4],
        "step_id": 1,
    }
    console = Console(width=80, no_color=True)
    with console.capture() as capture:
        console.print(picture(drawn, 80))
    assert "▓█▒·◆" in capture.get()
    assert "one cell is 10 blocks" in capture.get()
