"""Keys in a real Redis: written by the command line, read by the scheduler while it runs."""

import asyncio
import logging

import pytest
from typer.testing import CliRunner

from doubles.valkey import ValkeyServer
from octavo.main import app
from scheduler.adapters.key_redis import HASH, KeyRedis
from scheduler.adapters.key_source import key_source
from scheduler.api.access import Access
from scheduler.api.errors import ApiError
from scheduler.api.route_classes import RouteClass
from scheduler.errors import InvalidConfiguration


@pytest.fixture
def valkey(tmp_path):
    server = ValkeyServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def keys(valkey):
    source = key_source(valkey.url)
    yield source
    await source.close()


def octavo(url: str, *words: str):
    return CliRunner().invoke(app, ["keys", words[0], "--api-keys", url, *words[1:]], env={"COLUMNS": "200"})


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.05)


async def test_a_key_works_once_it_is_created_and_no_longer_than_it_stands_there(valkey, keys):
    key = octavo(valkey.url, "create", "--tenant", "acme").stdout.strip()
    await until(lambda: keys.keyring() and keys.keyring().find(key.encode()))
    assert keys.keyring().find(key.encode()).tenant == "acme"
    assert key.split("-", 2)[2].encode() not in b"".join(valkey.client.hvals(HASH))
    key_id = key.split("-")[1]
    assert key_id in octavo(valkey.url, "list").stdout
    assert octavo(valkey.url, "revoke", key_id).exit_code == 0
    await until(lambda: keys.keyring().find(key.encode()) is None)
    again = octavo(valkey.url, "revoke", key_id)
    assert (again.exit_code, f"no key with the id '{key_id}'" in again.stderr) == (1, True)


async def test_the_keys_stay_while_redis_is_away_or_holds_rubbish(valkey, keys, caplog):
    key = octavo(valkey.url, "create", "--tenant", "acme").stdout.strip().encode()
    await until(lambda: keys.keyring() and keys.keyring().find(key))
    with caplog.at_level(logging.ERROR):
        valkey.client.hset(HASH, "x", "{")
        await until(lambda: "is not JSON" in caplog.text)
    valkey.kill()
    await until(lambda: "Redis does not answer" in caplog.text)
    assert keys.keyring().find(key).tenant == "acme"
    assert octavo(valkey.url, "list").exit_code == 1


async def test_nobody_is_told_that_a_key_is_wrong_before_the_keys_were_read(tmp_path):
    source = KeyRedis(f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(ApiError) as refused:
        Access(source).admit(RouteClass.INFERENCE, b"oct-a-b")
    assert refused.value.status == 503
    assert "waits for the Redis" in str(refused.value)
    await source.close()


async def test_a_url_that_is_none_is_refused():
    with pytest.raises(InvalidConfiguration, match="--api-keys"):
        KeyRedis("redis://host:port/1")
