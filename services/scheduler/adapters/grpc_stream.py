"""One long-lived stream to a service: each request gets exactly one answer, in order."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc

from scheduler.errors import SchedulerError, StepRefused

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

BROKEN_PROMISES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
    }
)
"""Statuses that say the request itself is wrong: sending it again would not help."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class RequestStream(Generic[RequestT, ResponseT]):
    """Opens ``method`` on a channel to ``address`` (a gRPC target). Questions may be asked before others are answered.

    Every way in which the peer does not answer, frozen included, raises ``unavailable`` and closes the stream.
    """

    def __init__(
        self, address: str, method: Callable[[grpc.aio.Channel], Any], unavailable: type[SchedulerError]
    ) -> None:
        self._address = address
        self._method = method
        self._unavailable = unavailable
        self._channel: grpc.aio.Channel | None = None
        self._call: Any = None
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()  # which are fair: answers go to who asked

    @property
    def is_open(self) -> bool:
        """Whether the stream was opened and has not broken since."""
        return self._call is not None and not self._call.done()

    async def open(self, request: RequestT, timeout_s: float) -> ResponseT:
        """Starts a new stream with its first message, in place of the old one if there was one.

        A peer that does not accept the message now may do so later: that is ``unavailable`` too.
        """
        self._hang_up()
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._address, options=CHANNEL_OPTIONS)
        self._call = self._method(self._channel)()
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()
        try:
            return await self.ask(request, timeout_s)
        except StepRefused as error:
            raise self._unavailable(str(error)) from None

    async def ask(self, request: RequestT, timeout_s: float) -> ResponseT:
        """Sends a request and waits for its answer.

        Raises:
            StepRefused: The peer says that the request breaks a promise.

        """
        if self._call is None:
            raise self._unavailable(f"the stream to {self._address} is not open")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._exchange(request)
        except TimeoutError:
            raise self._unavailable(f"{self._address} did not answer within {timeout_s:g} s") from None
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise self._unavailable(f"the stream to {self._address} was ended by another request on it") from None
        except grpc.aio.AioRpcError as error:
            kind = StepRefused if error.code() in BROKEN_PROMISES else self._unavailable
            raise kind(f"{self._address}: {error.code().name.lower()}: {error.details()}") from None
        except asyncio.InvalidStateError as error:
            raise self._unavailable(f"the stream to {self._address} broke: {error}") from None

    async def close(self) -> None:
        """Ends the stream and the connection."""
        self._hang_up()
        if self._channel is not None:
            await self._channel.close(grace=None)
            self._channel = None

    async def _exchange(self, request: RequestT) -> ResponseT:
        call, reading = self._call, self._reading
        answered = False
        try:
            async with self._writing:
                await call.write(request)
            async with reading:
                response: ResponseT = await call.read()
            if response is grpc.aio.EOF:  # type: ignore[attr-defined]
                raise self._unavailable(f"{self._address} ended the stream")
            answered = True
            return response
        finally:
            if not answered and call is self._call:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
