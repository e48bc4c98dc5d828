"""Journals in Redis or Valkey: one stream, one snapshot and one lease per pool.

Keys of a pool: ``octavo:<pool>:journal`` (stream; entry ``n`` has the id ``n-0``), ``:head`` (position of the last
entry), ``:snapshot`` and ``:snapshot-before`` (hashes), ``:owner`` (the lease: a token that expires),
``:fence`` (counts leases).
``octavo:pools`` is the set of all pool ids.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.retry import Retry

from kvmanager.adapters import scripts
from kvmanager.adapters.redis_connection import QuickConnection
from kvmanager.errors import (
    JournalAhead,
    JournalBehind,
    JournalUnavailable,
    KVManagerError,
    LeaseLost,
    PoolOwnedElsewhere,
)
from kvmanager.ports import Entry, StoredSnapshot

T = TypeVar("T")

_ANSWER_S = 2.0
"""Redis is away if it does not answer within this time."""

_REFUSALS: dict[str, type[KVManagerError]] = {
    "OWNED": PoolOwnedElsewhere,
    "UNOWNED": LeaseLost,
    "AHEAD": JournalAhead,
    "BEHIND": JournalBehind,
}


class RedisJournalStore:
    """Journals in the Redis at ``url``, written by ``instance``.

    An instance that starts again under the same name takes its lease back at once; another one waits until it ends.
    """

    def __init__(self, url: str, *, instance: str, lease_s: float) -> None:
        self._client = redis.Redis.from_url(
            url, socket_timeout=_ANSWER_S, socket_connect_timeout=_ANSWER_S, retry=Retry(NoBackoff(), 0)
        )
        self._instance = instance
        self._lease_ms = round(lease_s * 1000)

    def journal(self, pool_id: str) -> "RedisJournal":
        return RedisJournal(self._client, pool_id, self._instance, self._lease_ms)

    async def pool_ids(self) -> Sequence[str]:
        members = await _on_thread(lambda: cast("set[bytes]", self._client.smembers("octavo:pools")))
        return sorted(member.decode() for member in members)

    async def ping(self) -> None:
        await _on_thread(self._client.ping)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)


class RedisJournal:
    """The journal of one pool. Appends have a connection of their own; everything else takes one from the pool."""

    def __init__(self, client: "redis.Redis", pool_id: str, instance: str, lease_ms: int) -> None:
        self._client = client
        self._connection = QuickConnection(client)
        self._instance = instance
        self._lease_ms = lease_ms
        self._pool_id = pool_id
        self._token = ""
        prefix = f"octavo:{pool_id}:"
        self._owner, self._head, self._stream = prefix + "owner", prefix + "head", prefix + "journal"
        self._snapshot, self._fence = prefix + "snapshot", prefix + "fence"
        self._snapshot_before = prefix + "snapshot-before"
        self._acquire = client.register_script(scripts.ACQUIRE)
        self._renew = client.register_script(scripts.RENEW)
        self._release = client.register_script(scripts.RELEASE)
        self._save_snapshot = client.register_script(scripts.SAVE_SNAPSHOT)
        self._append_sha = client.register_script(scripts.APPEND).sha

    # --- Lease ---

    async def acquire(self) -> None:
        keys = [self._owner, self._fence, "octavo:pools"]
        arguments: list[str | int] = [self._instance, secrets.token_hex(8), self._lease_ms, self._pool_id]
        token = await _on_thread(lambda: self._acquire(keys=keys, args=arguments))
        self._token = token.decode()

    async def renew(self) -> None:
        await _on_thread(lambda: self._renew(keys=[self._owner], args=[self._token, self._lease_ms]))

    async def release(self) -> None:
        try:
            await _on_thread(lambda: self._release(keys=[self._owner], args=[self._token]))
        except (LeaseLost, PoolOwnedElsewhere):
            return

    # --- Writing ---

    async def append(self, position: int, content: bytes) -> None:
        keys = (self._owner, self._head, self._stream)
        command = ("EVALSHA", self._append_sha, 3, *keys, self._token, position - 1, position, content)
        try:
            try:
                await self._connection.call(*command)
            except NoScriptError:
                await self._connection.call("SCRIPT", "LOAD", scripts.APPEND)
                await self._connection.call(*command)
        except ResponseError as error:
            raise _refusal(error) from error
        except (RedisError, OSError) as error:
            raise JournalUnavailable(f"Redis did not take entry {position}: {error}") from error

    async def save_snapshot(self, snapshot: StoredSnapshot) -> None:
        keys = [self._owner, self._head, self._stream, self._snapshot, self._snapshot_before]
        arguments: list[str | int | bytes] = [self._token, snapshot.position, snapshot.content]
        await _on_thread(lambda: self._save_snapshot(keys=keys, args=arguments))

    # --- Reading ---

    async def head(self) -> int:
        return int(await _on_thread(lambda: self._client.get(self._head)) or 0)

    async def entries(self, after: int, limit: int) -> Sequence[Entry]:
        start = f"{after + 1}-0"
        found = await _on_thread(
            lambda: cast(
                "list[tuple[bytes, dict[bytes, bytes]]]", self._client.xrange(self._stream, min=start, count=limit)
            )
        )
        return [Entry(int(entry_id.partition(b"-")[0]), fields[b"e"]) for entry_id, fields in found]

    async def snapshot(self) -> StoredSnapshot | None:
        return await self._read_snapshot(self._snapshot)

    async def snapshot_before(self) -> StoredSnapshot | None:
        return await self._read_snapshot(self._snapshot_before)

    async def _read_snapshot(self, key: str) -> StoredSnapshot | None:
        position, content = await _on_thread(
            lambda: cast("list[bytes | None]", self._client.hmget(key, "position", "content"))
        )
        return None if position is None or content is None else StoredSnapshot(int(position), content)


async def _on_thread(call: Callable[[], T]) -> T:
    """Makes a blocking call off the event loop and turns its errors into the kvmanager's."""
    try:
        return await asyncio.to_thread(call)
    except ResponseError as error:
        raise _refusal(error) from error
    except (RedisError, OSError) as error:
        raise JournalUnavailable(f"Redis does not answer: {error}") from error


def _refusal(error: ResponseError) -> KVManagerError:
    kind = str(error).partition(" ")[0]
    return _REFUSALS.get(kind, JournalUnavailable)(f"Redis refuses: {error}")
