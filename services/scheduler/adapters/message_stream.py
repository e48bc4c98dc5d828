"""A stream of messages to a service, whatever carries them."""

from typing import Protocol, TypeVar

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class MessageStream(Protocol[RequestT_contra, ResponseT_co]):
    """Each request gets exactly one answer, in order; questions may be asked before others are answered.

    ``open`` and ``ask`` raise the adapter's error for a peer that does not answer, which closes the stream, and ``ask``
    raises ``StepRefused`` for a request that breaks a promise.
    """

    @property
    def is_open(self) -> bool:
        """Whether the stream was opened and has not broken since."""

    async def open(self, request: RequestT_contra, timeout_s: float) -> ResponseT_co:
        """Starts anew with a first message."""

    async def ask(self, request: RequestT_contra, timeout_s: float) -> ResponseT_co:
        """Sends a request and waits for its answer."""

    async def close(self) -> None:
        """Ends the stream."""
