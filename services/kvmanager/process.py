"""One kvmanager process: serves, watches its journal store, and ends in order."""

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Protocol

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kvmanager.errors import JournalUnavailable
from kvmanager.inspection_servicer import InspectorServicer
from kvmanager.inspector import Inspector
from kvmanager.pools import Pools
from kvmanager.ports import JournalStore
from kvmanager.servicer import KVManagerServicer
from kvmanager.settings import Settings
from kvmanager.v1 import inspection_pb2_grpc, kvmanager_pb2, kvmanager_pb2_grpc

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 1.0
_FOLLOW_EVERY_S = 0.2
_DRAIN_S = 1.0

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
_SERVICE = kvmanager_pb2.DESCRIPTOR.services_by_name["KVManager"].full_name


class _Health(Protocol):
    """The part of grpc-health's servicer that is used here."""

    async def set(self, service: str, status: int) -> None: ...


async def serve(settings: Settings, store: JournalStore, pools: Pools) -> None:
    """Serves until SIGTERM or SIGINT. Starts before the journal store does; health says when it answers."""
    server = aio.server()
    health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined] # the stubs lack it
    await _report(health_servicer, ready=False)
    kvmanager_pb2_grpc.add_KVManagerServicer_to_server(KVManagerServicer(pools, watermark=settings.watermark), server)
    inspector = Inspector(pools, settings.instance, pin_budget=settings.pin_budget)
    inspection_pb2_grpc.add_InspectorServicer_to_server(InspectorServicer(inspector), server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    server.add_insecure_port(settings.listen)
    await server.start()
    _log.info("listening on %s as instance %r", settings.listen, settings.instance)
    # What lives now lives for ever: the collector need not look at it again in the middle of a step.
    gc.collect()
    gc.freeze()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    duties = [watch(store, health_servicer), pools.renew_leases(settings.lease_s / 3), inspector.expire_pins()]
    if settings.standby:
        duties.append(pools.follow(_FOLLOW_EVERY_S))
    await _until(stop, duties)
    _log.info("draining")
    await _report(health_servicer, ready=False)
    await server.stop(_DRAIN_S)
    await pools.close()
    await store.close()


async def watch(store: JournalStore, health_servicer: _Health) -> None:
    """Reports whether the journal store answers, for ever."""
    ready: bool | None = None
    while True:
        try:
            await store.ping()
            answers = True
        except JournalUnavailable as error:
            answers = False
            _log.warning("waiting for the journal store: %s", error)
        if answers != ready:
            ready = answers
            await _report(health_servicer, ready=ready)
            _log.info("ready" if ready else "not ready")
        await asyncio.sleep(_WATCH_EVERY_S)


async def _report(health_servicer: _Health, *, ready: bool) -> None:
    for service in ("", _SERVICE):
        await health_servicer.set(service, _SERVING if ready else _NOT_SERVING)


async def _until(stop: asyncio.Event, duties: list[Coroutine[Any, Any, None]]) -> None:
    """Runs duties until ``stop``; one that fails ends the process with its error."""
    tasks = [asyncio.create_task(duty) for duty in duties]
    stopped = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (stopped, *tasks):
        task.cancel()
    for task in done:
        with contextlib.suppress(asyncio.CancelledError):
            task.result()
    await asyncio.gather(stopped, *tasks, return_exceptions=True)
