"""The file that `octavo keys` writes: JSON with one entry for each key, none of which can be used to call."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from scheduler.adapters.key_entries import keyring_of
from scheduler.core.keys import Keyring
from scheduler.errors import InvalidConfiguration

VERSION = 1
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

    async def close(self) -> None:
        """There is nothing to close."""

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
            return keyring_of(items, str(path))
        case _:
            raise InvalidConfiguration(f"--api-keys {path}: must have version {VERSION} and a list of keys")
