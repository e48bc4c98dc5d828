"""Who calls, and the engine as callers see it: each its own tenant's requests, within its key's limits.

The caller goes with the task that handles a request, so that no route has to hand it on, and none can forget to.
"""

from collections.abc import AsyncGenerator, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from scheduler.api.open_requests import OpenRequests, call_id_of
from scheduler.api.rate_limits import Meter
from scheduler.core.request import OutputDelta, Request, RequestId
from scheduler.core.tenants import tenant_salt
from scheduler.errors import RequestRefused
from scheduler.ports import Generator
from scheduler.wrapped_generator import WrappedGenerator


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: nobody in particular where no key is needed. It never holds the key."""

    tenant: str = ""
    meter: Meter | None = None


NOBODY = Caller()
CALLER: ContextVar[Caller] = ContextVar("caller", default=NOBODY)
"""Who sent the request that the current task handles; set by the gate."""


class CallerGenerator(WrappedGenerator):
    """Keeps tenants' cached prefixes and ids apart, and counts what keys use."""

    def __init__(self, generator: Generator, open_requests: OpenRequests) -> None:
        super().__init__(generator)
        self._open = open_requests

    def check(self, request: Request) -> None:
        """As the engine, and raises ``ApiError`` 429 for what the key may not use now."""
        caller = CALLER.get()
        call_id = call_id_of(request.request_id)
        if self._open.engine_ids(caller.tenant, call_id):
            raise RequestRefused(f"request_id is {call_id!r}, which is in use", param="request_id")
        super().check(_own(request, caller))
        if caller.meter is not None:
            caller.meter.require_tokens(len(request.prompt_token_ids))

    def generate(self, request: Request) -> AsyncGenerator[OutputDelta, None]:
        """As the engine. Until the stream is closed, the request can be ended by its id."""
        caller = CALLER.get()
        own = _own(request, caller)
        stream = super().generate(own)
        self._open.add(caller.tenant, request.request_id, own.request_id)
        if caller.meter is not None:
            caller.meter.count_tokens(len(request.prompt_token_ids))
        return _CallerStream(stream, self._open, (caller.tenant, request.request_id), caller.meter)

    def abort(self, request_id: RequestId) -> bool:
        """As the engine, for a request of the caller's tenant."""
        return super().abort(_own_id(request_id, CALLER.get()))

    def abort_call(self, call_id: str) -> bool:
        """Ends what is in progress of a call; ``False`` if the caller's tenant has no such call."""
        engine_ids = self._open.engine_ids(CALLER.get().tenant, call_id)
        ended = [self._generator.abort(engine_id) for engine_id in engine_ids]
        return any(ended)


def _own(request: Request, caller: Caller) -> Request:
    if not caller.tenant:
        return request
    salt = tenant_salt(caller.tenant, request.cache_salt)
    return replace(request, request_id=_own_id(request.request_id, caller), cache_salt=salt)


def _own_id(request_id: RequestId, caller: Caller) -> RequestId:
    return RequestId(f"{caller.tenant}/{request_id}") if caller.tenant else request_id


class _CallerStream(AsyncGenerator[OutputDelta, None]):
    """The engine's stream, counted."""

    def __init__(
        self,
        stream: AsyncGenerator[OutputDelta, None],
        open_requests: OpenRequests,
        name: tuple[str, RequestId],
        meter: Meter | None,
    ) -> None:
        self._stream = stream
        self._open = open_requests
        self._name = name
        self._meter = meter

    def __anext__(self) -> Coroutine[Any, Any, OutputDelta]:
        """The next delta; where nothing is counted, at no cost."""
        return self._stream.asend(None) if self._meter is None else self.asend(None)

    async def asend(self, value: None) -> OutputDelta:  # noqa: ARG002 (a reader sends nothing)
        """The next delta."""
        delta = await anext(self._stream)
        if self._meter is not None:
            self._meter.count_tokens(len(delta.token_ids))
        return delta

    async def athrow(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> OutputDelta:  # noqa: ANN401
        """Throws into the engine's stream."""
        return await self._stream.athrow(typ, val, tb)

    async def aclose(self) -> None:
        """Closes the engine's stream; its id is free again."""
        self._open.remove(*self._name)
        await self._stream.aclose()
