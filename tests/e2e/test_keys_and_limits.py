"""One cluster with keys, priorities and a short queue: who gets in, who goes first, who waits, and how it ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import httpx
import pytest

PROMPT = "The capital of France is"
LONG = "You are a patient librarian who answers every question about books with care and in one sentence. " * 4
SETTINGS = {
    "num_device_blocks": 96,
    "max_num_seqs": 2,
    "max_model_len": 512,
    "scheduling_policy": "priority",
    "max_waiting": 4,
    "queue_timeout": 20,
}


@pytest.fixture(scope="module")
def keys(start_module_cluster, tmp_path_factory):
    """A cluster and a function that creates keys while it runs."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text('{"version": 1, "keys": []}')
    cluster = start_module_cluster(api_keys=path, **SETTINGS)

    def create(tenant: str, *words: str) -> str:
        command = [
            sys.executable,
            "-m",
            "octavo",
            "keys",
            "create",
            "--api-keys",
            str(path),
            "--tenant",
            tenant,
            *words,
        ]
        created = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert created.returncode == 0, created.stderr
        return created.stdout.strip()

    return cluster, create


@pytest.fixture(scope="module")
def tenants(keys) -> dict[str, str]:
    """A key of each of two tenants, known to the running server."""
    cluster, create = keys
    created = {tenant: create(tenant) for tenant in ("acme", "globex")}
    deadline_s = time.monotonic() + 5
    while httpx.get(f"{cluster.base_url}/v1/models", headers=bearer(created["globex"])).status_code != 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    return created


@pytest.fixture
def client(keys, tenants):
    cluster, _ = keys
    headers = bearer(tenants["acme"])
    return httpx.AsyncClient(base_url=cluster.base_url, headers=headers, timeout=120)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def complete(client: httpx.AsyncClient, headers=None, **body) -> httpx.Response:
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, **body}
    return await client.post("/v1/completions", json=body, headers=headers)


async def streamed(client: httpx.AsyncClient, started: asyncio.Event | None = None, **body) -> list[str]:
    """The data of every event."""
    body = {"prompt": PROMPT, "temperature": 0, "stream": True, **body}
    events = []
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(line.removeprefix("data: "))
                if started is not None:
                    started.set()
    return events


def reason_of(events: list[str]) -> str:
    assert events[-1] == "[DONE]"
    return json.loads(events[-2])["choices"][0]["finish_reason"]


async def test_only_a_key_opens_inference(client, tenants):
    async with client:
        assert (await complete(client)).status_code == 200
        guessed = tenants["acme"][:-1] + "?"
        refused = await complete(client, headers=bearer(guessed))
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (await client.get("/admin/v1/pools")).status_code == 403


async def test_cached_prefixes_are_shared_only_within_a_tenant_and_a_salt(client, tenants):
    async def num_cached(tenant: str, salt: str | None) -> int:
        answer = await complete(client, bearer(tenants[tenant]), prompt=LONG, cache_salt=salt, max_tokens=1)
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    async with client:
        calls = [("acme", "A"), ("acme", "A"), ("acme", "B"), ("acme", None), ("globex", "A"), ("globex", None)]
        cached = [await num_cached(*call) for call in calls]
    assert [num > 0 for num in cached] == [False, True, False, False, False, False]


async def test_a_rate_limit_says_what_is_left_and_when_to_come_back(keys):
    cluster, create = keys
    key = create("slow", "--requests-per-minute", "1")
    async with httpx.AsyncClient(base_url=cluster.base_url, headers=bearer(key), timeout=60) as client:
        await asyncio.sleep(1.5)  # the file is looked at every second
        first = await complete(client)
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        second = await complete(client)
    assert second.status_code == 429
    assert 1 <= int(second.headers["retry-after"]) <= 60


async def test_a_more_urgent_request_overtakes_and_the_others_finish_unchanged(client):
    async with client:
        alone = (await complete(client, max_tokens=40, ignore_eos=True)).json()["choices"][0]["text"]
        ended: list[str] = []

        async def call(name: str, **body) -> str:
            answer = await complete(client, **body)
            ended.append(name)
            return answer.json()["choices"][0]["text"]

        routine = [asyncio.create_task(call("routine", max_tokens=40, ignore_eos=True, priority=5)) for _ in range(4)]
        await asyncio.sleep(0.3)
        urgent = await call("urgent", max_tokens=2, priority=-5)
        assert ended == ["urgent"]
        assert alone.startswith(urgent)
        assert await asyncio.gather(*routine) == [alone] * 4


async def test_a_full_queue_answers_429_and_each_choice_counts(client):
    async with client:
        started = [asyncio.Event() for _ in range(2)]
        running = [asyncio.create_task(streamed(client, each, max_tokens=300, ignore_eos=True)) for each in started]
        await asyncio.gather(*(each.wait() for each in started))
        waiting = [asyncio.create_task(complete(client, n=2)) for _ in range(2)]
        await asyncio.sleep(1)
        refused = await complete(client)
        for task in running:
            task.cancel()
        assert [(await task).status_code for task in waiting] == [200, 200]
    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
    assert "more than 4" in error["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 120


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_ended_by_its_id_within_its_tenant(client, tenants, stream):
    async with client:
        started = asyncio.Event()
        body = {"max_tokens": 300, "ignore_eos": True, "request_id": f"job-{stream}", "stream": stream}
        running = asyncio.create_task(streamed(client, started, **body) if stream else complete(client, **body))
        await (started.wait() if stream else asyncio.sleep(1))
        path = f"/v1/requests/job-{stream}"
        assert (await client.delete(path, headers=bearer(tenants["globex"]))).status_code == 404
        assert (await client.delete(path)).json() == {"id": f"job-{stream}", "aborted": True}
        ended = await running
        reason = reason_of(ended) if stream else ended.json()["choices"][0]["finish_reason"]
        assert reason == "abort"
        assert (await client.delete(path)).status_code == 404


async def test_a_request_that_waits_too_long_gets_504_and_holds_nothing(start_cluster):
    cluster = start_cluster(max_num_seqs=1, num_device_blocks=64, max_model_len=512, queue_timeout=1)
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=120) as client:
        running = asyncio.create_task(streamed(client, max_tokens=300, ignore_eos=True))
        await asyncio.sleep(0.5)
        for stream in (False, True):
            late = await complete(client, stream=stream)
            assert (late.status_code, late.json()["error"]["code"]) == (504, "queue_timeout")
        running.cancel()
        assert (await complete(client)).status_code == 200


async def test_three_streams_finish_after_sigterm_while_new_work_is_refused(start_cluster):
    cluster = start_cluster(num_device_blocks=64, max_model_len=512, drain_timeout=60)
    scheduler = cluster.pid("scheduler")
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=120) as client:
        started = [asyncio.Event() for _ in range(3)]
        running = [asyncio.create_task(streamed(client, event, max_tokens=60, ignore_eos=True)) for event in started]
        for event in started:
            await event.wait()
        os.kill(scheduler, signal.SIGTERM)
        await asyncio.sleep(0.2)
        refused = await complete(client)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        assert [reason_of(await task) for task in running] == ["length"] * 3
    cluster.wait_restarted("scheduler", scheduler)
    assert f"scheduler (process {scheduler}) ended with exit code 0" in cluster.output()
