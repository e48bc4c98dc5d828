"""An operator looks into a real cluster while it works, while it breaks, and after somebody tampered with it."""

import json
import stat
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

SHARED = "You are a patient librarian who answers every question about books with care and in one sentence. " * 3


def complete(cluster, prompt: str, max_tokens: int = 8, **body) -> dict:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, **body}
    answer = httpx.post(f"{cluster.base_url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def look(cluster, *words: str) -> dict:
    shown = cluster.octavo(*words, "--json")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return json.loads(shown.stdout)


@contextmanager
def admin(cluster):
    key = (cluster.data_dir / "admin.key").read_text().strip()
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{cluster.base_url}/admin/v1", headers=headers, timeout=60) as client:
        yield client


@contextmanager
def load(cluster, num_streams: int = 4):
    """Requests with a shared prefix, one after the other on each of some threads."""
    over, failures = threading.Event(), []

    def work(number: int) -> None:
        turn = 0
        while not over.is_set():
            turn += 1
            try:
                complete(cluster, f"{SHARED} Question {number}.{turn % 3}:", 24, n=1 + number % 2)
            except Exception as error:  # noqa: BLE001 (told below)
                failures.append(error)
                return

    threads = [threading.Thread(target=work, args=(number,)) for number in range(num_streams)]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.fixture(scope="module")
def small(tmp_path_factory, model_path):
    """A pool in which four streams with a long prefix are preempted now and then."""
    from e2e.conftest import running_cluster

    with running_cluster(tmp_path_factory.mktemp("cluster"), num_device_blocks=48, max_model_len=512) as running:
        yield running


def test_the_admin_key_belongs_to_its_owner_and_is_on_no_command_line(small):
    path = small.data_dir / "admin.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text().strip()
    for service in small.services():
        assert key not in Path(f"/proc/{service['pid']}/cmdline").read_text()
    assert key not in (small.data_dir / "cluster.json").read_text()
    assert key not in small.output()
    assert httpx.get(f"{small.base_url}/admin/v1/pools").status_code == 401


def test_an_operator_sees_blocks_sharing_steps_and_sequences_of_a_busy_pool(small):
    with load(small), admin(small) as client:
        while not (sharing := look(small, "blocks", "--sharing"))["blocks"]:
            time.sleep(0.05)
        assert sharing["num_logical_blocks"] > sharing["num_physical_blocks"]
        assert len(sharing["blocks"][0]["holders"]) == sharing["blocks"][0]["reference_count"] >= 2
        requests = client.get("/requests").json()["requests"]
        assert requests
        assert all(sequence["num_prompt_tokens"] > 40 for request in requests for sequence in request["sequences"])
        tables = (client.get(f"/sequences/{s['sequence_id']}") for request in requests for s in request["sequences"])
        assert any(table.status_code == 200 and table.json()["blocks"] for table in tables)
        steps = look(small, "steps", "--count", "256")["steps"]
        ids = [step["step_id"] for step in steps]
        assert ids == list(range(ids[0], ids[0] - len(ids), -1))
    pool = look(small, "pools")["pools"][0]
    assert pool["pool_id"] == "local"
    assert pool["counters"]["num_hit_tokens"] > 0
    assert (pool["num_used_device_blocks"], pool["num_sequences"]) == (0, 0)
    tree = look(small, "blocks", "--tree")["nodes"]
    assert len(tree) == pool["num_cached_device_blocks"]
    known = {node["hash"] for node in tree}
    assert all(node["parent_hash"] is None or node["parent_hash"] in known for node in tree)


def test_every_preemption_has_its_reason(start_cluster):
    cluster = start_cluster(num_device_blocks=20, max_model_len=256)
    with load(cluster, 6):
        while not (gone := [s for s in look(cluster, "steps", "--count", "256")["steps"] if s["preempted"]]):
            time.sleep(0.05)
    assert "blocks and" in gone[0]["preempted"][0]["reason"]
    counters = look(cluster, "pools")["pools"][0]["counters"]
    assert counters["num_recomputations"] + counters["num_swaps"] > 0


def test_an_audit_is_clean_under_load_and_after_the_kvmanager_was_killed(small):
    with load(small):
        for _ in range(3):
            report = look(small, "audit")
            assert (report["findings"], report["not_compared"]) == ([], [])
            assert report["num_checked_blocks"] == 48 + 64
        killed = small.kill("kvmanager")
        small.wait_restarted("kvmanager", killed)
        report = look(small, "audit")
        assert (report["findings"], report["not_compared"]) == ([], [])
    assert look(small, "audit")["num_checked_sequences"] == 0


def test_the_journal_is_stepped_through(small):
    complete(small, SHARED + "Replay:")
    last = look(small, "replay")
    before = look(small, "replay", "--step", str(last["last_step_id"] - 1))
    assert before["pool"]["last_step_id"] == last["last_step_id"] - 1
    assert before["sequences"]
    shown = small.octavo("replay", "--step", str(last["last_step_id"] - 1))
    assert "the journal reaches from" in shown.stdout
    refused = small.octavo("replay", "--step", str(last["last_step_id"] + 99))
    assert refused.returncode == 1
    assert f"the last one is {last['last_step_id']}" in refused.stderr


def test_a_pinned_prompt_stays_cached_and_a_reset_forgets_it(small):
    prompt = SHARED + "Pinned:"
    complete(small, prompt)
    with admin(small) as client:
        pinned = client.post("/pins", json={"prompt": prompt})
        assert pinned.status_code == 200, pinned.text
        for number in range(6):
            complete(small, f"{number} quite another text, again and again. " * 14, 4)
        cached = complete(small, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= 16 * (pinned.json()["num_blocks"] - 1) > 0
        assert len(look(small, "blocks", "--state", "pinned")["blocks"]) == pinned.json()["num_blocks"]
        body = {"prompt": prompt, "max_tokens": 300, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", f"{small.base_url}/v1/completions", json=body, timeout=60) as answer:
            next(answer.iter_lines())
            busy = client.post("/prefix-cache/reset")
            assert (busy.status_code, busy.json()["error"]["code"]) == (409, "pool_busy")
        while client.get("/pools/default").json()["num_sequences"]:
            time.sleep(0.05)
        reset = client.post("/prefix-cache/reset")
        assert reset.status_code == 200, reset.text
        assert reset.json()["num_ended_pins"] == 1
    assert complete(small, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_an_entry_that_somebody_deleted_from_redis_is_found_and_named(small):
    complete(small, "The capital of France is")
    with redis.Redis(unix_socket_path=str(small.data_dir / "run" / "redis.sock")) as client:
        ((entry, _),) = client.xrevrange("octavo:local:journal", count=1)
        client.xdel("octavo:local:journal", entry)
    found = small.octavo("audit")
    assert found.returncode == 1
    assert "redis" in found.stdout
    assert f"entry {entry.decode().partition('-')[0]} of the journal is missing" in found.stdout
    findings = json.loads(small.octavo("audit", "--json").stdout)["findings"]
    assert [finding["owner"] for finding in findings] == ["redis"]
