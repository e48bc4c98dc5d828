"""Composition root of the process: ``python -m octavo.in_process REDIS FLAGS OF THE GPUWORKER -- OF THE SCHEDULER``.

What an administrator asks goes through the services' own sockets, which this process serves as well; steps do not.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

import typer
import uvloop
from grpc import aio

from gpuworker import main as gpuworker_main
from gpuworker.assembly import assemble
from gpuworker.errors import KernelError, SettingsInvalid, WorkerError
from gpuworker.servicer import Servicer
from gpuworker.settings import Settings as WorkerSettings
from gpuworker.v1 import gpuworker_pb2_grpc
from kvmanager.adapters.redis_journal import RedisJournalStore
from kvmanager.adapters.state_codec import StateCodec
from kvmanager.inspection_servicer import InspectorServicer
from kvmanager.inspector import Inspector
from kvmanager.pools import Pools
from kvmanager.settings import Settings as MemorySettings
from kvmanager.v1 import inspection_pb2_grpc
from octavo.in_process.services import local_memory, local_worker
from scheduler.adapters.grpc_inspector import GrpcPoolInspector, GrpcWorkerInspector
from scheduler.command import command as scheduler_command
from scheduler.errors import InvalidConfiguration
from scheduler.main import Peers, serve_until_stopped
from scheduler.settings import Settings

logger = logging.getLogger("octavo.in_process")

S = TypeVar("S")
R = TypeVar("R")

INSTANCE = "in-process"


def main() -> None:
    """Serves until SIGTERM or SIGINT."""
    redis, *words = sys.argv[1:]
    middle = words.index("--")
    worker_settings: WorkerSettings = _parsed(gpuworker_main.command, words[:middle], None)
    settings: Settings = _parsed(scheduler_command, words[middle + 1 :], 0)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    memory_settings = MemorySettings(settings.kvmanager, redis, instance=INSTANCE)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings, memory_settings, worker_settings))
    except (WorkerError, KernelError, InvalidConfiguration) as error:
        logger.critical("%s", error)
        sys.exit(2 if isinstance(error, SettingsInvalid | InvalidConfiguration) else 1)


def _parsed(command: Callable[[Callable[[S], R]], typer.Typer], words: list[str], code: R) -> S:
    """The settings that a service's own command line makes of ``words``; ends the process where it refuses them."""
    parsed: list[S] = []

    def keep(settings: S) -> R:
        parsed.append(settings)
        return code

    try:
        command(keep)(words)
    except SystemExit:  # typer ends so, whatever came of it
        if not parsed:
            raise
    return parsed[0]


async def serve(settings: Settings, memory: MemorySettings, worker: WorkerSettings) -> None:
    """All three services, joined by calls."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute") as compute:
        engine = await asyncio.get_running_loop().run_in_executor(compute, assemble, worker)
        store = RedisJournalStore(memory.redis, instance=memory.instance, lease_s=memory.lease_s)
        pools = Pools(store, StateCodec(), memory.journal)
        inspector = Inspector(pools, memory.instance, pin_budget=memory.pin_budget)
        server = aio.server()
        inspection_pb2_grpc.add_InspectorServicer_to_server(InspectorServicer(inspector), server)
        gpuworker_pb2_grpc.add_GPUWorkerServicer_to_server(Servicer(engine, compute), server)
        server.add_insecure_port(memory.listen)
        await server.start()
        peers = Peers(
            worker=local_worker(engine, compute),
            memory=local_memory(pools, watermark=memory.watermark),
            pools=GrpcPoolInspector(memory.listen),
            tables=GrpcWorkerInspector(memory.listen),
        )
        try:
            async with _duties(pools.renew_leases(memory.lease_s / 3), inspector.expire_pins()):
                await serve_until_stopped(settings, peers)
        finally:
            await server.stop(grace=None)
            await pools.close()
            await store.close()


@asynccontextmanager
async def _duties(*duties: Coroutine[None, None, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(duty) for duty in duties]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
