"""Keys in Redis, for schedulers on several machines."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from octavo.errors import KeysUnusable
from octavo.key_store import StoredKey, as_json, from_json

HASH = "octavo:keys"
TIMEOUT_S = 5.0


class KeyRedis:
    """Implements ``KeyStore`` in a hash of Redis: the key's id, and what is kept of it as JSON."""

    def __init__(self, url: str) -> None:
        try:
            self._client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        except ValueError as fault:
            raise KeysUnusable(f"--api-keys is no URL of Redis: {fault}") from fault

    def read(self) -> list[StoredKey]:
        """See ``KeyStore``."""
        with _answering():
            stored = self._client.hgetall(HASH)
        try:
            keys = [from_json(json.loads(value)) for value in stored.values()]
        except (ValueError, KeyError, TypeError):
            raise KeysUnusable(f"{HASH} in Redis holds an entry that is no key.") from None
        return sorted(keys, key=lambda key: (key.created, key.key_id))

    def add(self, stored: StoredKey) -> None:
        """See ``KeyStore``."""
        with _answering():
            self._client.hset(HASH, stored.key_id, json.dumps(as_json(stored)))

    def revoke(self, key_id: str) -> StoredKey:
        """See ``KeyStore``."""
        found = next((key for key in self.read() if key.key_id == key_id), None)
        if found is None:
            raise KeysUnusable(f"{HASH} in Redis has no key with the id {key_id!r}; `octavo keys list` shows the ids.")
        with _answering():
            self._client.hdel(HASH, key_id)
        return found


@contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as fault:
        raise KeysUnusable(f"Redis cannot be used for keys: {fault}") from fault
