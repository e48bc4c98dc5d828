"""A cluster of its own for a measurement, with nothing cached and nobody else on it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from octavo import catalog
from octavo.data_folder import DataFolder
from octavo.progress import Stages
from octavo.services import Service, local_cluster
from octavo.settings import ClusterSettings, Dtype, Kernels, PreemptionMode, claim_port
from octavo.supervisor import Supervisor

MAX_WAITING = 4096  # requests: a measurement may send all of its at once


def plain_settings(model: str, threads: int | None) -> ClusterSettings:
    """A cluster as `octavo up` starts it unless it is told otherwise; change it with ``dataclasses.replace``."""
    return ClusterSettings(
        host="127.0.0.1",
        port=0,
        data_dir=Path(),  # and port: chosen by ``private_cluster``
        model=model,
        served_model_name=None,
        redis=None,
        block_size=16,
        num_device_blocks=None,
        num_host_blocks=None,
        kv_memory="1GiB",
        max_num_batched_tokens=512,
        max_num_seqs=64,
        preemption_mode=PreemptionMode.AUTO,
        max_model_len=None,
        max_waiting=MAX_WAITING,
        threads=threads,
        dtype=Dtype.AUTO,
        kernels=Kernels.AUTO,
        drain_timeout_s=0.0,
    )


@dataclass(frozen=True, slots=True)
class PrivateCluster:
    """A running cluster."""

    base_url: str
    admin_key: str


def _as_usual(service: Service) -> Service:
    return service


@asynccontextmanager
async def private_cluster(settings: ClusterSettings, console: Console) -> AsyncIterator[str]:
    """Starts it on a free port and a folder that ends with it; gives the address of its API. For the main thread."""
    async with altered_cluster(settings, console, _as_usual) as cluster:
        yield cluster.base_url


@asynccontextmanager
async def altered_cluster(
    settings: ClusterSettings, console: Console, alter: Callable[[Service], Service]
) -> AsyncIterator[PrivateCluster]:
    """The same with each service as ``alter`` makes it."""
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as root, Stages(console) as stages:
        folder = DataFolder(Path(root))
        with folder.locked():
            own = replace(settings, data_dir=folder.root, port=claim_port(settings.host, 0))
            path = await asyncio.to_thread(catalog.locate, own.model)
            admin_key = folder.make_admin_key()
            services = [alter(service) for service in local_cluster(own, path, folder, admin_key)]
            supervisor = Supervisor(services, folder, console)
            try:
                await supervisor.start(stages)
                stages.close()
                yield PrivateCluster(supervisor.base_url, admin_key)
            finally:
                await supervisor.drain(asyncio.Event())
