"""The containers of docker-compose.yml, built and started for real, under a name and a port of their own."""

import json
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from octavo.settings import claim_port

ROOT = Path(__file__).parents[2]
UP_TIMEOUT_S = 600


class Compose:
    """One project of the compose file."""

    def __init__(self, model: Path) -> None:
        self.project = f"octavo-test-{uuid.uuid4().hex[:8]}"
        self.base_url = f"http://127.0.0.1:{claim_port('127.0.0.1', 0)}"
        self.engine = docker.from_env()
        self._environment = {
            **os.environ,
            "OCTAVO_PORT": self.base_url.rpartition(":")[2],
            "OCTAVO_MODEL_DIR": str(model.parent),
            "OCTAVO_MODEL_FILE": model.name,
            "OCTAVO_KV_MEMORY": "64MiB",
            "OCTAVO_DTYPE": "float32",
        }

    def run(self, *words: str) -> str:
        """Run a `docker compose` command on this project; its output, or a failed test with it."""
        command = ["docker", "compose", "--project-name", self.project, *words]
        finished = subprocess.run(
            command,
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=UP_TIMEOUT_S,
        )
        assert finished.returncode == 0, f"{' '.join(command)}\n{finished.stdout[-6000:]}"
        return finished.stdout

    def up(self, *words: str) -> None:
        """Start, and wait until every container is healthy."""
        try:
            self.run("up", "--build", "--detach", "--wait", *words)
        except AssertionError as failed:
            raise AssertionError(f"{failed}\n{self.run('logs', '--tail', '40')}") from None

    def containers(self, service: str) -> list[Container]:
        """The service's containers that run."""
        labels = [f"com.docker.compose.project={self.project}", f"com.docker.compose.service={service}"]
        return self.engine.containers.list(filters={"label": labels})

    def wait_healthy(self, service: str, timeout_s: float = 90.0) -> None:
        """Wait until every container of ``service`` is healthy."""
        deadline_s = time.monotonic() + timeout_s
        while not (found := self.containers(service)) or any(one.health != "healthy" for one in found):
            assert time.monotonic() < deadline_s, self.run("logs", "--tail", "40", service)
            time.sleep(0.2)

    def resolved(self) -> dict[str, object]:
        """The compose file as the engine understands it."""
        return json.loads(self.run("config", "--format", "json"))

    def remains(self) -> list[str]:
        """Names of the project's containers, networks, volumes and images that exist."""
        own = {"label": f"com.docker.compose.project={self.project}"}
        found = [
            *self.engine.containers.list(all=True, filters=own),
            *self.engine.networks.list(filters=own),
            *self.engine.volumes.list(filters=own),
        ]
        images = [tag for image in self.engine.images.list() for tag in image.tags if tag.startswith(self.project)]
        return [one.name or "?" for one in found] + images

    def down(self) -> None:
        """Remove everything that the project made."""
        self.run("down", "--volumes", "--remove-orphans", "--rmi", "local", "--timeout", "20")


@pytest.fixture(scope="module")
def compose(model_path: Path) -> Iterator[Compose]:
    project = Compose(model_path)
    try:
        project.up()
        yield project
    finally:
        if project.remains():
            project.down()
        project.engine.close()
