"""Keys of callers: what is known of each, and how one is recognized.

A key is ``oct-<id>-<secret>``, the secret being 256 random bits that only its owner has. What is stored is the SHA-256
of the whole key. A slow, salted hash is for passwords, which can be guessed; 256 random bits cannot, so a fast hash
gives nothing away, and a check costs microseconds on every request.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

PREFIX = "oct"
NOBODY = sha256(b"").digest()
"""What a key of an unknown id is compared with, so that it takes as long."""


class KeyClass(StrEnum):
    """What a key opens."""

    INFERENCE = "inference"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """What is known of one key. Limits count per minute; ``None`` is none."""

    key_id: str
    tenant: str  # whose cached prefixes its requests share
    key_class: KeyClass
    digest: bytes = field(repr=False)  # SHA-256 of the key
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class Keyring:
    """All keys at one time."""

    def __init__(self, entries: Mapping[str, KeyEntry] | None = None) -> None:
        self._entries = dict(entries or {})

    @property
    def opens_admin(self) -> bool:
        """Whether any key opens administration."""
        return any(entry.key_class is KeyClass.ADMIN for entry in self._entries.values())

    def find(self, key: bytes) -> KeyEntry | None:
        """Whose key this is; ``None`` for nobody's. Takes as long for a wrong secret as for the right one."""
        entry = self._entries.get(key_id_of(key))
        is_right = hmac.compare_digest(digest_of(key), entry.digest if entry else NOBODY)
        return entry if is_right else None


def digest_of(key: bytes) -> bytes:
    """What is stored of a key."""
    return sha256(key).digest()


def key_id_of(key: bytes) -> str:
    """The id that a key names; empty for what is no key."""
    prefix, _, rest = key.decode("latin-1").partition("-")
    key_id, _, secret = rest.partition("-")
    return key_id if prefix == PREFIX and secret else ""
