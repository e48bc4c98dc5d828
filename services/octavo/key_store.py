"""Keys of callers: what is kept of each, and where.

A key is ``oct-<id>-<secret>`` with 256 random bits in the secret. It is shown once; its SHA-256 is kept.
"""

import hashlib
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

ID_BYTES = 6
SECRET_BYTES = 32


class KeyClass(StrEnum):
    """What a key opens."""

    INFERENCE = "inference"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWish:
    """What a new key is to be. Limits count per minute; ``None`` is none."""

    tenant: str
    key_class: KeyClass = KeyClass.INFERENCE
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey(KeyWish):
    """What is kept of a key."""

    key_id: str
    sha256: str = field(repr=False)
    created: str  # ISO 8601, UTC


class KeyStore(Protocol):
    """Where the scheduler finds keys. Every method raises ``KeysUnusable`` if they cannot be read or written."""

    def read(self) -> list[StoredKey]:
        """All keys, oldest first."""

    def add(self, stored: StoredKey) -> None:
        """Keeps one more."""

    def revoke(self, key_id: str) -> StoredKey:
        """Takes a key out; returns what was kept of it. Raises ``KeysUnusable`` if there is none of that id."""


def is_redis_url(source: str) -> bool:
    """Whether ``--api-keys`` names a Redis and no file."""
    return source.startswith(("redis://", "rediss://", "unix://"))


def create_key(store: KeyStore, wish: KeyWish) -> tuple[StoredKey, str]:
    """Adds a key; returns what is kept of it, and the key itself. Raises ``KeysUnusable``."""
    key_id = secrets.token_hex(ID_BYTES)
    key = f"oct-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    stored = StoredKey(**asdict(wish), key_id=key_id, sha256=digest, created=created)
    store.add(stored)
    return stored, key


def from_json(item: dict[str, Any]) -> StoredKey:
    """Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what is no entry."""
    return StoredKey(
        key_id=item["id"],
        tenant=item["tenant"],
        key_class=KeyClass(item["class"]),
        sha256=item["sha256"],
        created=item["created"],
        requests_per_minute=item["requests_per_minute"],
        tokens_per_minute=item["tokens_per_minute"],
    )


def as_json(key: StoredKey) -> dict[str, Any]:
    """The entry that the scheduler reads."""
    return {
        "id": key.key_id,
        "tenant": key.tenant,
        "class": key.key_class.value,
        "sha256": key.sha256,
        "created": key.created,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
    }
