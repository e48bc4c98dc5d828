"""A cluster of its own for a measurement, with nothing cached and nobody else on it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from octavo import catalog
from octavo.data_folder import DataFolder
from octavo.progress import Stages
from octavo.services import local_cluster
from octavo.settings import ClusterSettings, claim_port
from octavo.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Running:
    """Where a private cluster answers."""

    url: str
    admin_key: str


@asynccontextmanager
async def private_cluster(settings: ClusterSettings, console: Console) -> AsyncIterator[Running]:
    """Starts it on a free port and a folder that ends with it. Must be used from the main thread."""
    with tempfile.TemporaryDirectory(prefix="octavo-bench-") as root, Stages(console) as stages:
        folder = DataFolder(Path(root))
        with folder.locked():
            own = replace(settings, data_dir=folder.root, port=claim_port(settings.host, 0))
            admin_key = folder.make_admin_key()
            path = await asyncio.to_thread(catalog.locate, own.model)
            supervisor = Supervisor(local_cluster(own, path, folder, admin_key), folder, console)
            try:
                await supervisor.start(stages)
                stages.close()
                yield Running(supervisor.base_url, admin_key)
            finally:
                await supervisor.drain(asyncio.Event())
