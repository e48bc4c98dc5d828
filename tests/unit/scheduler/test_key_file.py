"""Keys from a file, which may change at any time."""

import json
import logging

import pytest

from scheduler.adapters.key_file import LOOK_EVERY_S, KeyFile, read_keyring
from scheduler.core.keys import KeyClass, digest_of
from scheduler.errors import InvalidConfiguration

KEY = b"oct-a1-secret"


def item(**changes) -> dict:
    fields = {"id": "a1", "tenant": "t", "class": "inference", "sha256": digest_of(KEY).hex()} | changes
    return {name: value for name, value in fields.items() if value is not None}


def write(path, *items) -> None:
    path.write_text(json.dumps({"version": 1, "keys": items}))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_entry_has_a_tenant_a_class_and_limits(tmp_path):
    path = tmp_path / "keys.json"
    write(path, item(requests_per_minute=5), item(id="b2", **{"class": "admin"}))
    found = read_keyring(path).find(KEY)
    assert found is not None
    assert (found.tenant, found.key_class, found.requests_per_minute) == ("t", KeyClass.INFERENCE, 5)
    assert found.tokens_per_minute is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", "must have version 1"),
        ({"version": 2, "keys": []}, "must have version 1"),
        ([5], "key 0: id is missing or wrong"),
        ([item(id=None)], "key 0: id"),
        ([item(tenant="")], "key 0: tenant"),
        ([item(), item(**{"class": "root"})], "key 1: class"),
        ([item(sha256="zz")], "key 0: sha256"),
        ([item(sha256="ab")], "key 0: sha256"),
        ([item(requests_per_minute=0)], "key 0: requests_per_minute"),
        ([item(tokens_per_minute=True)], "key 0: tokens_per_minute"),
        ([item(tokens_per_minute=10**400)], "key 0: tokens_per_minute"),
        ([item(), item()], "an id is there more than once"),
    ],
)
def test_a_bad_file_is_refused_by_entry_and_field(tmp_path, content, message):
    path = tmp_path / "keys.json"
    if content is not None:
        content = {"version": 1, "keys": content} if isinstance(content, list) else content
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(InvalidConfiguration, match=message) as caught:
        read_keyring(path)
    assert digest_of(KEY).hex() not in str(caught.value)


def test_a_changed_file_is_read_again_without_a_restart(tmp_path):
    path, clock = tmp_path / "keys.json", Clock()
    write(path)
    keys = KeyFile(path, clock)
    write(path, item())
    assert keys.keyring().find(KEY) is None
    clock.now += LOOK_EVERY_S
    assert keys.keyring().find(KEY) is not None
    write(path)
    clock.now += LOOK_EVERY_S
    assert keys.keyring().find(KEY) is None


def test_a_file_that_cannot_be_read_leaves_the_keys_as_they_were(tmp_path, caplog):
    path, clock = tmp_path / "keys.json", Clock()
    write(path, item())
    keys = KeyFile(path, clock)
    for spoil in (lambda: path.write_text("{"), path.unlink):
        spoil()
        clock.now += LOOK_EVERY_S
        with caplog.at_level(logging.ERROR):
            assert keys.keyring().find(KEY) is not None
    assert caplog.text.count("stay as they were") == 2
    write(path)
    clock.now += LOOK_EVERY_S
    assert keys.keyring().find(KEY) is None
