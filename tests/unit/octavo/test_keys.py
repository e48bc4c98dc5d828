"""Keys of callers: shown once, kept as digests, read by the scheduler."""

import hashlib
import json
import stat
import sys

import pytest
from typer.testing import CliRunner

from octavo.errors import KeysUnusable
from octavo.key_file import KeyFile
from octavo.key_store import KeyClass, KeyWish, create_key
from octavo.main import app
from scheduler.adapters.key_file import read_keyring

runner = CliRunner()


def octavo(path, *words: str):
    return runner.invoke(app, ["keys", words[0], "--api-keys", str(path), *words[1:]], env={"COLUMNS": "200"})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "keys.json"


def test_a_created_key_is_printed_alone_and_only_its_digest_is_kept(path):
    created = octavo(path, "create", "--tenant", "acme", "--requests-per-minute", "60")
    key = created.stdout.strip()
    assert created.exit_code == 0
    assert len(key) > 50
    stored = path.read_text()
    assert key not in stored
    assert key.split("-", 2)[2] not in stored
    assert json.loads(stored)["keys"][0]["sha256"] == hashlib.sha256(key.encode()).hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_scheduler_recognizes_what_the_command_line_wrote(path):
    keys = [octavo(path, "create", "--tenant", "acme", *more).stdout.strip() for more in ([], ["--class", "admin"])]
    keyring = read_keyring(path)
    assert [keyring.find(key.encode()).key_class.value for key in keys] == ["inference", "admin"]
    assert keyring.find(keys[0].encode()).tenant == "acme"
    assert keyring.find(keys[0].encode()[:-1]) is None


def test_the_list_shows_no_secret_and_a_revoked_key_is_gone(path):
    keys = [octavo(path, "create", "--tenant", tenant, "--tokens-per-minute", "7").stdout for tenant in ("a", "b")]
    listed = octavo(path, "list").stdout
    assert all(key.strip() not in listed for key in keys)
    first = keys[0].split("-")[1]
    assert first in listed
    assert octavo(path, "revoke", first).exit_code == 0
    assert first not in octavo(path, "list").stdout
    assert read_keyring(path).find(keys[1].strip().encode()) is not None
    again = octavo(path, "revoke", first)
    assert again.exit_code == 1
    assert f"no key with the id '{first}'" in again.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--tenant", " "],
        ["--tenant", "a", "--requests-per-minute", "0"],
        ["--tenant", "a", "--tokens-per-minute", str(10**400)],
        [],
    ],
)
def test_a_key_without_tenant_or_with_a_useless_limit_is_refused(path, words):
    assert octavo(path, "create", *words).exit_code == 2
    assert not path.exists()


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "keys": []}', '{"version": 1, "keys": [{"id": "a"}]}'])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(KeysUnusable, match="no file of keys"):
        create_key(KeyFile(path), KeyWish(tenant="a", key_class=KeyClass.ADMIN))
    assert path.read_text() == content


def test_keys_in_redis_without_its_client_are_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "octavo.key_redis", None)
    refused = octavo("redis://127.0.0.1:6379/1", "list")
    assert refused.exit_code == 1
    assert "octavo[kvmanager]" in refused.stderr
