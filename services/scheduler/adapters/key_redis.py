"""Keys in Redis: a hash with one entry for each key, which `octavo keys` writes."""

import asyncio
import contextlib
import json
import logging

from redis.asyncio import Redis
from redis.exceptions import RedisError

from scheduler.adapters.key_entries import keyring_of
from scheduler.core.keys import Keyring
from scheduler.errors import InvalidConfiguration

HASH = "octavo:keys"
LOOK_EVERY_S = 1.0
TIMEOUT_S = 2.0

logger = logging.getLogger(__name__)


class KeyRedis:
    """Keys as they stand in Redis, to the second. While Redis is away they stay as they were.

    Must be made and used on one event loop. Raises ``InvalidConfiguration`` for a URL that is none.
    """

    def __init__(self, url: str) -> None:
        try:
            self._client = Redis.from_url(url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S)
        except ValueError as error:
            raise InvalidConfiguration(f"--api-keys: not a URL of Redis: {error}") from None
        self._keyring: Keyring | None = None
        self._trouble = ""
        self._task = asyncio.create_task(self._keep_reading())

    def keyring(self) -> Keyring | None:
        """All keys; ``None`` until they were read for the first time."""
        return self._keyring

    async def close(self) -> None:
        """Stops reading."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._client.aclose()

    async def _keep_reading(self) -> None:
        while True:
            try:
                self._keyring = await self._read()
                self._note("")
            except (RedisError, OSError) as error:
                self._note(f"Redis does not answer ({type(error).__name__})")
            except InvalidConfiguration as error:
                self._note(str(error))
            await asyncio.sleep(LOOK_EVERY_S)

    async def _read(self) -> Keyring:
        stored = await self._client.hgetall(HASH)
        try:
            items = [json.loads(value) for value in stored.values()]
        except ValueError:
            raise InvalidConfiguration(f"--api-keys: an entry of {HASH} is not JSON") from None
        return keyring_of(items, HASH)

    def _note(self, trouble: str) -> None:
        """Logs what changed: once when trouble begins, once when it is over."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble:
            logger.error("%s; the keys stay as they were", trouble)
        else:
            logger.info("the keys are read from Redis again")
