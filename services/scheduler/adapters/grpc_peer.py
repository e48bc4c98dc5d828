"""Single questions to another service over gRPC, and its errors in the scheduler's words."""

from collections.abc import Awaitable
from typing import TypeVar

import grpc

from scheduler.adapters.grpc_stream import CHANNEL_OPTIONS
from scheduler.errors import NotFound, NotReady, RequestFailed, RequestRefused, SchedulerError

T = TypeVar("T")


class Peer:
    """Another service. It is connected to when it is first asked."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None

    @property
    def channel(self) -> grpc.aio.Channel:
        """What a stub is made with."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        return self._channel

    async def ask(self, call: Awaitable[T]) -> T:
        """The answer. Raises ``NotFound``, ``RequestRefused``, ``NotReady`` and ``RequestFailed``."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise _error_of(self._address, error) from None

    async def close(self) -> None:
        """Ends the connection."""
        if self._channel is not None:
            await self._channel.close(grace=None)
            self._channel = None


def _error_of(address: str, error: grpc.aio.AioRpcError) -> SchedulerError:
    message = error.details() or error.code().name.lower()
    match error.code():
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(message)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return RequestRefused(message)
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
            return NotReady(f"{address} does not answer: {message}")
        case _:
            return RequestFailed(f"{address}: {message}")
