"""A stream of messages to a service in the same process: no socket, no bytes, no other loop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from scheduler.errors import SchedulerError, StepRefused

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

Answer = Callable[[RequestT], Awaitable[ResponseT]]


class LocalStream(Generic[RequestT, ResponseT]):
    """A ``MessageStream`` whose ``start`` gives what answers a new caller.

    ``error_of`` puts a service's error into the scheduler's words; anything but ``StepRefused`` closes the stream.
    """

    def __init__(
        self,
        start: Callable[[], Answer[RequestT, ResponseT]],
        error_of: Callable[[Exception], SchedulerError],
        unavailable: type[SchedulerError],
    ) -> None:
        self._start = start
        self._error_of = error_of
        self._unavailable = unavailable
        self._answer: Answer[RequestT, ResponseT] | None = None

    @property
    def is_open(self) -> bool:
        """Whether the stream was opened and nothing failed since."""
        return self._answer is not None

    async def open(self, request: RequestT, timeout_s: float) -> ResponseT:
        """Greets the service as a new caller; a refusal now is ``unavailable``, as it may not last."""
        self._answer = self._start()
        try:
            return await self.ask(request, timeout_s)
        except StepRefused as error:
            raise self._unavailable(str(error)) from None

    async def ask(self, request: RequestT, timeout_s: float) -> ResponseT:
        """The answer. What was asked goes on when nobody waits for it any more."""
        answer = self._answer
        if answer is None:
            raise self._unavailable("the stream is not open")
        answered = False
        try:
            async with asyncio.timeout(timeout_s):
                response = await answer(request)
            answered = True
            return response
        except TimeoutError:
            raise self._unavailable(f"no answer within {timeout_s:g} s") from None
        except Exception as error:
            raise self._error_of(error) from error
        finally:
            if not answered and answer is self._answer:
                self._answer = None

    async def close(self) -> None:
        """Ends the stream."""
        self._answer = None
