"""A connection to Redis that an event loop can wait on cheaply."""

import asyncio

import redis
from redis.connection import ConnectionInterface

_BLOCKING_READ_S = 0.02
"""An answer is awaited this long on the event loop, which is cheaper than leaving it; then on a thread."""


class QuickConnection:
    """One connection for short commands, one at a time: about a third of what an asyncio client costs per command.

    Errors are redis-py's. After a broken connection the next call connects again.
    """

    def __init__(self, client: "redis.Redis") -> None:
        self._connection: ConnectionInterface = client.connection_pool.make_connection()

    async def call(self, *command: str | int | bytes) -> object:
        """Sends a command and waits for its answer."""
        connection = self._connection
        try:
            if not connection.is_connected:
                await asyncio.to_thread(connection.connect)
            connection.send_command(*command, check_health=False)  # type: ignore[no-untyped-call]
            if connection.can_read(timeout=_BLOCKING_READ_S):
                return connection.read_response()
            return await asyncio.to_thread(connection.read_response)
        except (redis.ConnectionError, redis.TimeoutError, OSError, asyncio.CancelledError):
            # An answer that nobody waits for any more must not be taken for that of the next command.
            self.close()
            raise

    def close(self) -> None:
        """Closes the connection; harmless if it is closed."""
        self._connection.disconnect()  # type: ignore[no-untyped-call]
