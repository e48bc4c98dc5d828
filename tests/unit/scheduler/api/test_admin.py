"""The admin routes: who may use them, what they ask, and what they answer."""

from http import HTTPStatus

import httpx
import pytest

from doubles.administrator import HASH, AdministratorDouble
from scheduler.api.access import Access
from scheduler.api.app import create_app
from scheduler.errors import NotReady
from scheduler.inspection import BlockQuery

KEY = "an admin key of the tests"

ROUTES = [
    ("GET", "/pools"),
    ("GET", "/pools/w0"),
    ("GET", "/pools/w0/map"),
    ("GET", "/pools/w0/blocks"),
    ("GET", "/pools/w0/blocks/1"),
    ("GET", "/requests"),
    ("GET", "/sequences/1"),
    ("GET", "/sharing"),
    ("GET", "/prefixes"),
    ("GET", "/steps"),
    ("GET", "/replay"),
    ("POST", "/audit"),
    ("GET", "/pins"),
    ("POST", "/pins"),
    ("DELETE", "/pins"),
    ("POST", "/prefix-cache/reset"),
]


@pytest.fixture
def administrator() -> AdministratorDouble:
    return AdministratorDouble()


@pytest.fixture
def app(service, administrator):
    return create_app(service, administrator, Access(admin_key=KEY))


@pytest.fixture
async def admin(app):
    headers = {"Authorization": f"Bearer {KEY}"}
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://octavo/admin/v1", headers=headers) as client:
        yield client


def error_of(answer, status: HTTPStatus) -> dict:
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


# --- The key ---


@pytest.mark.parametrize("given", [None, "Bearer wrong", f"Basic {KEY}", KEY, "Bearer ", f"Bearer {KEY}x", "Bearer é"])
async def test_no_route_answers_without_the_right_key(admin, administrator, given):
    del admin.headers["Authorization"]
    headers = {} if given is None else {"Authorization": given.encode()}
    for method, path in ROUTES:
        answer = await admin.request(method, path, headers=headers, json={"hash": HASH})
        assert error_of(answer, HTTPStatus.UNAUTHORIZED)["code"] == "invalid_admin_key"
        assert answer.headers["www-authenticate"] == "Bearer"
    assert administrator.pools.calls == []


async def test_without_a_configured_key_every_route_says_how_to_set_one(client):
    headers = {"Authorization": f"Bearer {KEY}"}
    for method, path in ROUTES:
        answer = await client.request(method, f"/admin/v1{path}", headers=headers, json={"hash": HASH})
        assert "OCTAVO_ADMIN_KEY" in error_of(answer, HTTPStatus.FORBIDDEN)["message"]


def test_every_admin_route_is_in_the_table_and_typed_in_the_openapi_document(app):
    paths = app.openapi()["paths"]
    known = {
        (method.upper(), path.removeprefix("/admin/v1").replace("{pool_id}", "w0").replace("{block_id}", "1"))
        for path, methods in paths.items()
        if path.startswith("/admin/v1")
        for method in methods
    }
    assert {(method, path.replace("{sequence_id}", "1")) for method, path in known} == set(ROUTES)
    for path, methods in paths.items():
        for route in methods.values() if path.startswith("/admin/v1") else ():
            assert "$ref" in route["responses"]["200"]["content"]["application/json"]["schema"], path


# --- Questions ---


async def test_every_route_answers_with_the_key(admin):
    for method, path in ROUTES:
        answer = await admin.request(method, path, json={"hash": HASH})
        assert answer.status_code == HTTPStatus.OK, answer.text


async def test_a_pool_shows_its_counters(admin):
    pool = (await admin.get("/pools/default")).json()
    assert pool["pool_id"] == "w0"
    assert pool["counters"]["num_swaps"] == 2
    assert pool["owner"] == "kvmanager-a"


async def test_blocks_are_filtered_and_paged(admin, administrator):
    path = "/pools/w0/blocks?state=used&tier=host&holder=3&start=2&limit=2"
    page = (await admin.get(path)).json()
    assert administrator.pools.calls[-1] == ("blocks", "w0", BlockQuery("host", "used", 3, 2, 2))
    assert [block["block_id"] for block in page["blocks"]] == [2, 3]
    assert page["next_start"] == 4
    assert (await admin.get("/pools/w0/blocks?start=6")).json()["next_start"] is None


async def test_a_sequence_maps_logical_to_physical(admin):
    table = (await admin.get("/sequences/1")).json()
    assert [(entry["logical"], entry["physical"]) for entry in table["blocks"]] == [(0, 2), (1, 0)]


async def test_requests_are_shown_without_their_prompts(admin):
    (request,) = (await admin.get("/requests")).json()["requests"]
    assert set(request) == {"request_id", "group_id", "num_cached_tokens", "num_preemptions", "sequences"}
    assert not any("text" in key or "token_ids" in key for key in request["sequences"][0])


async def test_a_step_says_who_gave_way_and_why(admin):
    (step,) = (await admin.get("/steps?count=1")).json()["steps"]
    assert step["preempted"] == [{"group_id": 2, "mode": "swap", "reason": "group 1 needs 1 blocks and 0 are free"}]
    assert step["swap_outs"] == [[0, 1]]


@pytest.mark.parametrize(
    ("path", "param"),
    [
        ("/pools/w0/blocks?limit=1001", "limit"),
        ("/pools/w0/blocks?state=lost", "state"),
        ("/pools/w0/blocks?start=-1", "start"),
        ("/pools/w0/blocks/x", "block_id"),
        ("/pools/w0/map?num_cells=5000", "num_cells"),
        ("/sequences/0", "sequence_id"),
        ("/prefixes?hash=xyz", "hash"),
        ("/steps?count=257", "count"),
        ("/replay?step=-2", "step"),
    ],
)
async def test_a_bad_parameter_is_named(admin, path, param):
    assert error_of(await admin.get(path), HTTPStatus.BAD_REQUEST)["param"] == param


@pytest.mark.parametrize(
    "path", ["/pools/w9", "/pools/w0/blocks/8", "/sequences/2", "/steps?pool=w9", "/pools/w9/blocks"]
)
async def test_what_is_not_there_is_a_404(admin, path):
    assert error_of(await admin.get(path), HTTPStatus.NOT_FOUND)["code"] == "not_found"


async def test_a_step_out_of_reach_is_a_400_with_the_reach(admin):
    error = error_of(await admin.get("/replay?step=12"), HTTPStatus.BAD_REQUEST)
    assert "the last one is 9" in error["message"]


async def test_a_kvmanager_that_is_away_is_a_503(admin, administrator):
    administrator.pools.error = NotReady("the kvmanager does not answer")
    error_of(await admin.get("/pools"), HTTPStatus.SERVICE_UNAVAILABLE)


# --- Commands ---


async def test_a_prefix_is_pinned_by_hash_or_by_prompt(admin, administrator):
    await admin.post("/pins", json={"hash": HASH, "ttl_s": 60})
    await admin.post("/pins", json={"prompt": "abc", "cache_salt": "s"})
    await admin.post("/pins", json={"prompt": [97, 98, 99], "cache_salt": "s"})
    by_prompt = b"abcs".ljust(32, b"\0")
    pinned = [call[1:] for call in administrator.pools.calls if call[0] == "pin"]
    assert pinned == [("w0", bytes.fromhex(HASH), 60), ("w0", by_prompt, 0), ("w0", by_prompt, 0)]
    answer = await admin.request("DELETE", "/pins", json={"prompt": "abc", "cache_salt": "s"})
    assert answer.json()["hash"] == by_prompt.hex()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "hash"),
        ({"hash": HASH, "prompt": "abc"}, "hash"),
        ({"hash": "xy"}, "hash"),
        ({"hash": HASH, "ttl_s": -1}, "ttl_s"),
        ({"hash": HASH, "ttl": 1}, "ttl"),
        ({"hash": 5}, "hash"),
    ],
)
async def test_a_bad_pin_names_the_field(admin, body, param):
    assert error_of(await admin.post("/pins", json=body), HTTPStatus.BAD_REQUEST)["param"] == param


async def test_a_reset_of_a_busy_pool_is_a_409_that_names_the_holders(admin, administrator):
    administrator.pools.holders = [4, 7]
    error = error_of(await admin.post("/prefix-cache/reset"), HTTPStatus.CONFLICT)
    assert error["code"] == "pool_busy"
    assert "[4, 7]" in error["message"]
