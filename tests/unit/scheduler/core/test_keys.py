"""Whose key it is."""

import pytest

from scheduler.core.keys import KeyClass, KeyEntry, Keyring, digest_of, key_id_of
from scheduler.core.tenants import tenant_salt
from scheduler.core.token_bucket import TokenBucket

KEY = b"oct-a1-secret-with-dashes"


def entry(key_id: str = "a1", key: bytes = KEY, key_class: KeyClass = KeyClass.INFERENCE) -> KeyEntry:
    return KeyEntry(key_id, "tenant", key_class, digest_of(key))


def test_a_key_is_found_by_its_id_and_secret():
    keyring = Keyring({"a1": entry()})
    assert keyring.find(KEY) == entry()
    assert not keyring.opens_admin
    assert Keyring({"a1": entry(key_class=KeyClass.ADMIN)}).opens_admin


@pytest.mark.parametrize(
    "key", [b"", b"oct-a1-", b"oct-a1", b"oct-a2-secret-with-dashes", b"oct-a1-secret", KEY + b"x", b"\xff\xfe", b"a1"]
)
def test_another_key_is_nobodys(key):
    assert Keyring({"a1": entry()}).find(key) is None
    assert Keyring().find(key) is None


def test_nothing_shows_what_is_stored_of_a_key():
    assert "digest" not in repr(entry())


def test_only_a_whole_key_names_an_id():
    assert key_id_of(KEY) == "a1"
    assert key_id_of(b"oct-a1-") == key_id_of(b"sk-a1-secret") == ""


def test_tenants_never_share_a_salt_whatever_their_requests_ask_for():
    pairs = [("", ""), ("", "s"), ("a", ""), ("a", "s"), ("as", ""), ("b", "s"), ("a", tenant_salt("b", ""))]
    assert len({tenant_salt(*pair) for pair in pairs}) == len(pairs)
    assert tenant_salt("", "s") == "s"


def test_a_bucket_lets_a_burst_pass_and_then_its_rate():
    bucket = TokenBucket(60, now_s=0.0)
    bucket.take(60, 0.0)
    assert bucket.level(0.0) == 0
    assert bucket.seconds_until(1, 0.0) == 1.0
    assert bucket.level(30.0) == 30
    assert bucket.seconds_until(31, 30.0) == 1.0
    assert bucket.level(3600.0) == 60


def test_an_overdrawn_bucket_fills_from_where_it_is():
    bucket = TokenBucket(60, now_s=0.0)
    bucket.take(90, 0.0)
    assert bucket.seconds_until(1, 10.0) == 21.0


def test_more_than_a_bucket_holds_waits_until_it_is_full():
    bucket = TokenBucket(60, now_s=0.0)
    bucket.take(6, 0.0)
    assert bucket.seconds_until(1000, 0.0) == 6.0
