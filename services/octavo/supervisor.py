"""Start the services of a cluster, keep them running, and end them in order."""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from octavo.child import Child, rotate
from octavo.concurrency import together
from octavo.data_folder import ClusterState, DataFolder, RunningService
from octavo.errors import ServiceFailed
from octavo.probes import probe
from octavo.progress import Stages
from octavo.restarts import MAX_RESTARTS, WINDOW_S, RestartBudget
from octavo.services import Service

START_TIMEOUT_S = 300.0
ELSEWHERE_TIMEOUT_S = 30.0  # of a service that somebody else runs, which has no model to load
POLL_INTERVAL_S = 0.1


class Supervisor:
    """The services of one cluster, as children of this process."""

    def __init__(self, services: Sequence[Service], folder: DataFolder, console: Console) -> None:
        self._services = services
        self.folder = folder
        self._console = console
        self._children: dict[str, Child] = {}
        self._budgets = {service.name: RestartBudget() for service in services}

    @property
    def base_url(self) -> str:
        """Address of the API, which the last service serves."""
        return self._services[-1].address

    async def start(self, stages: Stages) -> None:
        """Start all services at once and wait until each is ready; raises ``ServiceFailed``."""
        for service in self._services:
            if service.command:
                rotate(self._log(service))
                await self._launch(service)
        await together(*(self._become_ready(service, stages) for service in self._services))

    async def watch(self) -> None:
        """Start every service again that ends; returns never, raises ``ServiceFailed`` when one keeps ending."""
        await together(*(self._keep(name) for name in self._children))

    async def drain(self, hurry: asyncio.Event) -> None:
        """End the services, last started first; ``hurry`` ends at once what is left."""
        for service in reversed(self._services):
            child = self._children.pop(service.name, None)
            if child is not None:
                await self._end(child, hurry)

    async def _launch(self, service: Service) -> None:
        self._children[service.name] = await Child.start(service, self._log(service), service.environment)
        self.folder.write_state(self._state())

    async def _become_ready(self, service: Service, stages: Stages) -> None:
        with stages.stage(service.name, service.address):
            child = self._children.get(service.name)
            if child is None:
                await _until_ready(service)
                return
            ready, ended = asyncio.create_task(_until_ready(service)), asyncio.create_task(child.ended())
            try:
                await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    raise ServiceFailed(f"{service.name} {ended.result()} before it was ready. {_log_end(child)}")
                ready.result()
            finally:
                ready.cancel()
                ended.cancel()

    async def _keep(self, name: str) -> None:
        while True:
            child = self._children[name]
            how = await child.ended()
            delay_s = self._budgets[name].next_delay(time.monotonic())
            if delay_s is None:
                often = f"{name} ended more than {MAX_RESTARTS} times within {WINDOW_S:g} s; last it {how}"
                raise ServiceFailed(f"{often}. {_log_end(child)}")
            self._console.print(
                f"[yellow]{name}[/] (process {child.pid}) {how}; it is started again in {delay_s:g} s. "
                + escape(_log_end(child))
            )
            await asyncio.sleep(delay_s)
            await self._launch(child.service)

    async def _end(self, child: Child, hurry: asyncio.Event) -> None:
        name, grace_s = child.service.name, child.service.stop_grace_s
        stopping = asyncio.create_task(child.stop(grace_s))
        hurrying = asyncio.create_task(hurry.wait())
        await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()
        if not stopping.done():
            await child.kill()
        if not await stopping:
            self._console.print(f"[yellow]{name}[/] did not end within {grace_s:g} s and was killed.")

    def _log(self, service: Service) -> Path:
        return self.folder.logs / f"{service.name}.log"

    def _state(self) -> ClusterState:
        services = tuple(self._running(service) for service in self._services)
        return ClusterState(pid=os.getpid(), base_url=self.base_url, services=services)

    def _running(self, service: Service) -> RunningService:
        child = self._children.get(service.name)
        return RunningService(
            name=service.name,
            pid=child.pid if child else None,
            address=service.address,
            log=str(child.log) if child else None,
            restarts=self._budgets[service.name].total,
        )


async def _until_ready(service: Service) -> None:
    timeout_s = START_TIMEOUT_S if service.command else ELSEWHERE_TIMEOUT_S
    deadline_s = time.monotonic() + timeout_s
    while not (health := await probe(service.address)).ready:
        if time.monotonic() > deadline_s:
            raise ServiceFailed(
                f"{service.name} at {service.address} was not ready within {timeout_s:g} s: {health.detail}"
            )
        await asyncio.sleep(POLL_INTERVAL_S)


def _log_end(child: Child) -> str:
    tail = child.log_tail()
    return f"{child.log} ends with:\n{tail}" if tail else f"{child.log} is empty."
