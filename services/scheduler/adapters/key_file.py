"""The file that `octavo keys` writes: JSON with one entry for each key, none of which can be used to call."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.core.keys import KeyClass, KeyEntry, Keyring
from scheduler.errors import InvalidConfiguration

VERSION = 1
DIGEST_BYTES = 32
LOOK_EVERY_S = 1.0

logger = logging.getLogger(__name__)


class KeyFile:
    """Keys as they stand in a file at this moment, to the second. ``now`` is a monotonic clock in seconds.

    A file that cannot be read any more leaves the keys as they were. Raises ``InvalidConfiguration`` if that is so at
    the beginning.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._stamp = self._stamp_of_file()
        self._keyring = read_keyring(path)
        self._look_at_s = now() + LOOK_EVERY_S

    def keyring(self) -> Keyring:
        """All keys."""
        if (now_s := self._now()) >= self._look_at_s:
            self._look_at_s = now_s + LOOK_EVERY_S
            self._reload_if_changed()
        return self._keyring

    def _reload_if_changed(self) -> None:
        stamp = self._stamp_of_file()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keyring = read_keyring(self._path)
            logger.info("the keys were read again")
        except InvalidConfiguration as error:
            logger.error("%s; the keys stay as they were", error)

    def _stamp_of_file(self) -> tuple[int, ...]:
        try:
            status = self._path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino


def read_keyring(path: Path) -> Keyring:
    """Raises ``InvalidConfiguration`` that names the file, the entry and the field, and shows no value."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidConfiguration(f"--api-keys {path}: {error.strerror}") from None
    except ValueError:
        raise InvalidConfiguration(f"--api-keys {path}: not JSON") from None
    match document:
        case {"version": 1, "keys": [*items]}:
            entries = [_entry(path, index, item) for index, item in enumerate(items)]
        case _:
            raise InvalidConfiguration(f"--api-keys {path}: must have version {VERSION} and a list of keys")
    by_id = {entry.key_id: entry for entry in entries}
    if len(by_id) < len(entries):
        raise InvalidConfiguration(f"--api-keys {path}: an id is there more than once")
    return Keyring(by_id)


def _entry(path: Path, index: int, item: object) -> KeyEntry:
    try:
        return _parsed(item if isinstance(item, dict) else {})
    except (KeyError, TypeError, ValueError) as error:
        field = error.args[0] if isinstance(error, KeyError) else str(error)
        raise InvalidConfiguration(f"--api-keys {path}: key {index}: {field} is missing or wrong") from None


def _parsed(item: dict[str, Any]) -> KeyEntry:
    return KeyEntry(
        key_id=_text(item, "id"),
        tenant=_text(item, "tenant"),
        key_class=_class(item),
        digest=_digest(item),
        requests_per_minute=_limit(item, "requests_per_minute"),
        tokens_per_minute=_limit(item, "tokens_per_minute"),
    )


def _text(item: dict[str, Any], field: str) -> str:
    value = item[field]
    if not isinstance(value, str) or not value:
        raise ValueError(field)
    return value


def _class(item: dict[str, Any]) -> KeyClass:
    try:
        return KeyClass(item["class"])
    except ValueError:
        raise ValueError("class") from None


def _digest(item: dict[str, Any]) -> bytes:
    try:
        digest = bytes.fromhex(item["sha256"])
    except (TypeError, ValueError):
        raise ValueError("sha256") from None
    if len(digest) != DIGEST_BYTES:
        raise ValueError("sha256")
    return digest


def _limit(item: dict[str, Any], field: str) -> int | None:
    value = item.get(field)
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(field)
    return value
