"""The file of keys that the scheduler reads: one entry for each key, none of which can be used to call.

A key is ``oct-<id>-<secret>`` with 256 random bits in the secret. It is shown once; the file holds its SHA-256.
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from octavo.errors import KeysUnusable

VERSION = 1
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


class KeyFile:
    """Reads and changes a file of keys. Each change replaces the file in one move."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[StoredKey]:
        """All keys, oldest first; none if there is no file. Raises ``KeysUnusable``."""
        try:
            document = json.loads(self._path.read_bytes())
            if document["version"] == VERSION:
                return [_stored(item) for item in document["keys"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            pass  # in words that show nothing of what stands there
        raise KeysUnusable(f"{self._path} is no file of keys that can be read; `octavo keys create` makes one.")

    def create(self, wish: KeyWish) -> tuple[StoredKey, str]:
        """Adds a key; returns what is kept of it, and the key itself. Raises ``KeysUnusable``."""
        key_id = secrets.token_hex(ID_BYTES)
        key = f"oct-{key_id}-{secrets.token_urlsafe(SECRET_BYTES)}"
        digest = hashlib.sha256(key.encode()).hexdigest()
        created = datetime.now(UTC).isoformat(timespec="seconds")
        stored = StoredKey(**asdict(wish), key_id=key_id, sha256=digest, created=created)
        with self._changing() as keys:
            keys.append(stored)
        return stored, key

    def revoke(self, key_id: str) -> StoredKey:
        """Takes a key out; returns what was kept of it. Raises ``KeysUnusable`` if there is none of that id."""
        with self._changing() as keys:
            found = next((key for key in keys if key.key_id == key_id), None)
            if found is None:
                raise KeysUnusable(f"{self._path} has no key with the id {key_id!r}; `octavo keys list` shows the ids.")
            keys.remove(found)
        return found

    @contextmanager
    def _changing(self) -> Iterator[list[StoredKey]]:
        """The keys, to be changed; written back at the end. One process at a time."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.with_name(self._path.name + ".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                keys = self.read()
                yield keys
                self._write(keys)
        except OSError as fault:
            raise KeysUnusable(f"{self._path} cannot be written: {fault.strerror}") from fault

    def _write(self, keys: list[StoredKey]) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        fresh.unlink(missing_ok=True)
        document = {"version": VERSION, "keys": [_as_json(key) for key in keys]}
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
        fresh.replace(self._path)


def _stored(item: dict[str, Any]) -> StoredKey:
    return StoredKey(
        key_id=item["id"],
        tenant=item["tenant"],
        key_class=KeyClass(item["class"]),
        sha256=item["sha256"],
        created=item["created"],
        requests_per_minute=item["requests_per_minute"],
        tokens_per_minute=item["tokens_per_minute"],
    )


def _as_json(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "tenant": key.tenant,
        "class": key.key_class.value,
        "sha256": key.sha256,
        "created": key.created,
        "requests_per_minute": key.requests_per_minute,
        "tokens_per_minute": key.tokens_per_minute,
    }
