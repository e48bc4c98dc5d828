"""The file of keys that the scheduler reads."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import KeysUnusable
from octavo.key_store import StoredKey, as_json, from_json

VERSION = 1


class KeyFile:
    """Implements ``KeyStore`` in a file. Each change replaces the file in one move."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[StoredKey]:
        """All keys, oldest first; none if there is no file. Raises ``KeysUnusable``."""
        try:
            document = json.loads(self._path.read_bytes())
            if document["version"] == VERSION:
                return [from_json(item) for item in document["keys"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError):
            pass  # in words that show nothing of what stands there
        raise KeysUnusable(f"{self._path} is no file of keys that can be read; `octavo keys create` makes one.")

    def add(self, stored: StoredKey) -> None:
        """See ``KeyStore``."""
        with self._changing() as keys:
            keys.append(stored)

    def revoke(self, key_id: str) -> StoredKey:
        """See ``KeyStore``."""
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
        document = {"version": VERSION, "keys": [as_json(key) for key in keys]}
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
        fresh.replace(self._path)
