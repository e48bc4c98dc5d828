"""Who may call what, as whom, and how often."""

import asyncio
import json
import logging
from contextlib import asynccontextmanager

import httpx
import pytest

from doubles.administrator import AdministratorDouble
from scheduler.api.access import Access
from scheduler.api.app import create_app
from scheduler.api.route_classes import ROUTE_CLASSES, RouteClass, paths_of, require_classes
from scheduler.core.keys import KeyClass, KeyEntry, Keyring, digest_of

ALICE, ALICE_TOO, BOB, ADMIN, SLOW = (f"oct-{name}-secret" for name in ("alice", "alice2", "bob", "admin", "slow"))
BOOTSTRAP = "the bootstrap admin key"


class KeyList:
    """Keys that a test changes."""

    def __init__(self) -> None:
        self.entries: dict[str, KeyEntry] = {}
        self.put(ALICE, "a")
        self.put(ALICE_TOO, "a")
        self.put(BOB, "b")
        self.put(ADMIN, "ops", KeyClass.ADMIN)

    def put(self, key: str, tenant: str, key_class: KeyClass = KeyClass.INFERENCE, **limits: int) -> None:
        key_id = key.split("-")[1]
        self.entries[key_id] = KeyEntry(key_id, tenant, key_class, digest_of(key.encode()), **limits)

    def keyring(self) -> Keyring:
        return Keyring(self.entries)


@pytest.fixture
def keys() -> KeyList:
    return KeyList()


@pytest.fixture
def app(service, keys):
    return create_app(service, AdministratorDouble(), Access(keys, BOOTSTRAP))


@pytest.fixture
def calling(app):
    """A client for each key."""

    @asynccontextmanager
    async def open_client(key: str | None):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://octavo", headers=headers) as client:
            yield client

    return open_client


@pytest.fixture
def complete_as(calling):
    async def complete(key: str | None, **body) -> httpx.Response:
        async with calling(key) as client:
            return await client.post("/v1/completions", json={"prompt": "abc", "max_tokens": 2, **body})

    return complete


PUBLIC, INFERENCE, ADMINISTRATION = RouteClass.PUBLIC, RouteClass.INFERENCE, RouteClass.ADMIN
EXPECTED = {
    "/health": PUBLIC,
    "/ready": PUBLIC,
    "/metrics": PUBLIC,
    "/simulator": PUBLIC,
    "/version": PUBLIC,
    "/openapi.json": PUBLIC,
    "/v1/completions": INFERENCE,
    "/v1/chat/completions": INFERENCE,
    "/v1/requests/{request_id}": INFERENCE,
    "/v1/models": INFERENCE,
    "/v1/models/{model_id:path}": INFERENCE,
    "/tokenize": INFERENCE,
    "/detokenize": INFERENCE,
}


def test_every_route_has_the_class_that_this_table_says(app):
    served = set(paths_of(app.routes))
    for path in served:
        expected = ADMINISTRATION if path.startswith("/admin/") else EXPECTED.get(path)
        assert ROUTE_CLASSES.get(path) is expected is not None, path
    assert served == set(ROUTE_CLASSES)


def test_a_route_without_a_class_keeps_the_server_from_starting(app):
    app.add_api_route("/v1/new", lambda: None)
    with pytest.raises(LookupError, match="/v1/new has no class"):
        require_classes(app.routes)


@pytest.mark.parametrize(
    ("key", "statuses"),
    [
        (None, {PUBLIC: 200, INFERENCE: 401, ADMINISTRATION: 401}),
        ("sk-guessed", {PUBLIC: 200, INFERENCE: 401, ADMINISTRATION: 401}),
        ("oct-alice-guess", {PUBLIC: 200, INFERENCE: 401, ADMINISTRATION: 401}),
        (ALICE, {PUBLIC: 200, INFERENCE: 200, ADMINISTRATION: 403}),
        (ADMIN, {PUBLIC: 200, INFERENCE: 403, ADMINISTRATION: 200}),
        (BOOTSTRAP, {PUBLIC: 200, INFERENCE: 403, ADMINISTRATION: 200}),
    ],
)
async def test_a_key_opens_its_class_and_nothing_else(calling, key, statuses):
    paths = {PUBLIC: "/health", INFERENCE: "/v1/models/echo", ADMINISTRATION: "/admin/v1/pools"}
    async with calling(key) as client:
        for route_class, status in statuses.items():
            answer = await client.get(paths[route_class])
            assert answer.status_code == status
            if status != 200:
                error = answer.json()["error"]
                assert error["type"] == ("authentication_error" if status == 401 else "permission_error")
                assert key is None or key not in answer.text
        assert (await client.get("/admin/v1/nothing")).status_code in (401, 403, 404)
        assert (await client.get("/v1/nothing")).status_code == 404


async def test_without_a_key_file_inference_is_open_and_administration_is_closed(service):
    transport = httpx.ASGITransport(create_app(service, AdministratorDouble()))
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        answer = await client.post("/v1/completions", json={"prompt": "a"}, headers={"Authorization": "Bearer any"})
        assert answer.status_code == 200
        assert (await client.get("/admin/v1/pools")).status_code == 403


async def test_an_admin_key_of_the_file_opens_administration_without_the_other(service, keys):
    transport = httpx.ASGITransport(create_app(service, AdministratorDouble(), Access(keys)))
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        for key, status in ((ADMIN, 200), ("", 401)):
            answer = await client.get("/admin/v1/pools", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == status


async def test_nobody_without_a_key_has_a_body_read(app):
    async def endless():
        raise AssertionError("the body was read")
        yield b""

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo") as client:
        answer = await client.post("/v1/completions", content=endless())
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_revoked_key_is_refused_at_once(complete_as, keys):
    assert (await complete_as(ALICE)).status_code == 200
    del keys.entries["alice"]
    assert (await complete_as(ALICE)).status_code == 401


async def until_running(generator, num: int) -> None:
    while len(generator.running) < num:  # noqa: ASYNC110 - the condition is somebody else's state
        await asyncio.sleep(0.001)


# --- Tenants ---


async def test_only_requests_of_one_tenant_and_one_salt_share_cached_prefixes(complete_as, generator):
    for key, salt in ((ALICE, "A"), (ALICE_TOO, "A"), (ALICE, "B"), (ALICE, None), (BOB, "A"), (BOB, None)):
        assert (await complete_as(key, cache_salt=salt)).status_code == 200
    salts = [request.cache_salt for request in generator.accepted]
    assert salts[0] == salts[1]
    assert len(set(salts)) == 5
    assert not {"A", "B", ""} & set(salts)


async def test_two_tenants_may_use_the_same_request_id_and_one_may_not_twice(complete_as, generator):
    generator.gate.clear()
    running = [asyncio.create_task(complete_as(key, request_id="mine")) for key in (ALICE, BOB)]
    await until_running(generator, 2)
    again = await complete_as(ALICE_TOO, request_id="mine")
    assert (again.status_code, again.json()["error"]["param"]) == (400, "request_id")
    generator.gate.set()
    assert [(await task).json()["id"] for task in running] == ["mine", "mine"]
    assert (await complete_as(ALICE, request_id="mine")).status_code == 200


# --- Ending a request ---


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_ended_by_its_id_and_its_reader_is_told(calling, complete_as, generator, stream):
    generator.gate.clear()
    body = {"prompt": ["abc", "de"], "request_id": "job-7", "max_tokens": 5, "stream": stream}
    running = asyncio.create_task(complete_as(ALICE, **body))
    await until_running(generator, 2)
    async with calling(BOB) as bob, calling(ALICE_TOO) as alice:
        assert (await bob.delete("/v1/requests/job-7")).status_code == 404
        assert (await alice.delete("/v1/requests/job")).status_code == 404
        ended = await alice.delete("/v1/requests/job-7")
        assert (ended.status_code, ended.json()) == (200, {"id": "job-7", "aborted": True})
        answer = await running
        assert answer.status_code == 200
        if stream:
            events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")]
            reasons = [choice["finish_reason"] for event in events for choice in event["choices"]]
        else:
            reasons = [choice["finish_reason"] for choice in answer.json()["choices"]]
        assert [reason for reason in reasons if reason] == ["abort", "abort"]
        assert (await alice.delete("/v1/requests/job-7")).status_code == 404
    assert generator.running == set()


# --- Limits of a key ---


async def test_a_key_gets_its_requests_per_minute_and_is_told_what_is_left(complete_as, keys):
    keys.put(SLOW, "s", requests_per_minute=2)
    first, second, third = [await complete_as(SLOW) for _ in range(3)]
    assert [answer.status_code for answer in (first, second, third)] == [200, 200, 429]
    assert first.headers["x-ratelimit-limit-requests"] == "2"
    assert [first.headers["x-ratelimit-remaining-requests"], second.headers["x-ratelimit-remaining-requests"]] == [
        "1",
        "0",
    ]
    error = third.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "2 requests per minute" in error["message"]
    assert third.headers.get_list("x-ratelimit-remaining-requests") == ["0"]
    assert 1 <= int(third.headers["retry-after"]) <= 30
    assert (await complete_as(ALICE)).status_code == 200
    keys.put(SLOW, "s", requests_per_minute=100)
    assert (await complete_as(SLOW)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_prompts_and_outputs_count(complete_as, keys, stream):
    keys.put(SLOW, "s", tokens_per_minute=10)
    first = await complete_as(SLOW, prompt="abcd", max_tokens=3, stream=stream)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-limit-tokens"] == "10"
    too_much = await complete_as(SLOW, prompt="abcd", max_tokens=3)
    assert too_much.status_code == 429
    assert too_much.headers.get_list("x-ratelimit-remaining-tokens") == ["3"]
    assert (await complete_as(SLOW, prompt="a", max_tokens=5)).status_code == 200
    assert (await complete_as(SLOW, prompt="a", max_tokens=1)).status_code == 429


async def test_logs_and_errors_never_hold_keys_or_prompts(complete_as, caplog, keys, generator):
    keys.put(SLOW, "s", requests_per_minute=1)
    with caplog.at_level(logging.DEBUG):
        answers = [await complete_as(key, prompt="a private prompt") for key in (ALICE, "oct-alice-guess", SLOW, SLOW)]
        answers.append(await complete_as(ALICE, prompt="a private prompt", max_tokens=10**6))
    told = caplog.text + "".join(answer.text for answer in answers if answer.status_code != 200)
    for secret in (ALICE, SLOW, "guess", "private"):
        assert secret not in told
