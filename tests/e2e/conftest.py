"""Whole clusters, started by `octavo up` as a person starts them.

``cluster`` is one cluster for the session, with room for everything; ``start_cluster(**flags)`` makes another with
sizes of its own. Both have ``base_url``, ``model_id``, ``data_dir``, ``pid(name)`` and ``kill(name)``.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo import catalog
from octavo.data_folder import ClusterState, DataFolder

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 60.0

SMALL = {
    "port": 0,
    "dtype": "float32",
    "threads": 2,
    "block_size": 16,
    "num_device_blocks": 512,
    "num_host_blocks": 64,
    "max_model_len": 2048,
    "drain_timeout": 10,
}


class Cluster:
    """A running `octavo up`."""

    model_id = catalog.DEFAULT_MODEL

    def __init__(self, process: subprocess.Popen[str], data_dir: Path, output: Path) -> None:
        self.process = process
        self.data_dir = data_dir
        self._output = output

    @property
    def state(self) -> ClusterState:
        return DataFolder(self.data_dir).read_state()

    @property
    def base_url(self) -> str:
        """Address of the API, without ``/v1``."""
        return self.state.base_url

    def output(self) -> str:
        """What `octavo up` has printed."""
        return self._output.read_text()

    def pid(self, name: str) -> int:
        """Process id of the service ``name`` at this moment."""
        pid = next(service.pid for service in self.state.services if service.name == name)
        assert pid is not None
        return pid

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the service ``name``; returns the process id it had."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def wait_restarted(self, name: str, killed: int, timeout_s: float = 60.0) -> None:
        """Wait until ``name`` runs under another process id and the whole cluster is ready."""
        deadline_s = time.monotonic() + timeout_s
        while self.pid(name) == killed or self.octavo("status").returncode != 0:
            assert time.monotonic() < deadline_s, self.octavo("status").stdout + self.output()
            time.sleep(0.1)

    def octavo(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run an `octavo` command on this cluster's data folder."""
        command = [sys.executable, "-m", "octavo", words[0], *words[1:], "--data-dir", str(self.data_dir)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=END_TIMEOUT_S)

    def services(self) -> list[dict[str, Any]]:
        """What `octavo status --json` says of the services."""
        return json.loads(self.octavo("status", "--json").stdout)["services"]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask for the end and wait for it; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(END_TIMEOUT_S)


def _wait_ready(cluster: Cluster) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while "Octavo is ready" not in cluster.output():
        assert cluster.process.poll() is None, f"octavo up ended:\n{cluster.output()}"
        assert time.monotonic() < deadline_s, f"octavo up is not ready:\n{cluster.output()}"
        time.sleep(0.05)


@contextmanager
def running_cluster(folder: Path, **flags: object) -> Iterator[Cluster]:
    """A cluster in ``folder`` with ``SMALL`` settings, replaced by ``flags``.

    ``None`` leaves a flag out, ``True`` gives one without a value.
    """
    settings = {name: value for name, value in (SMALL | flags).items() if value is not None}
    words = []
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    output = folder / "octavo-up.log"
    data_dir = folder / "data"
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "octavo", "up", "--data-dir", str(data_dir), *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            text=True,
        )
    cluster = Cluster(process, data_dir, output)
    try:
        _wait_ready(cluster)
        yield cluster
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()  # its children end with it
            process.wait()
            raise


@pytest.fixture(scope="session")
def cluster(tmp_path_factory, model_path) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@contextmanager
def _starter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:

        def start(**flags: object) -> Cluster:
            return stack.enter_context(running_cluster(tmp_path_factory.mktemp("cluster"), **flags))

        yield start


@pytest.fixture
def start_cluster(tmp_path_factory, model_path):
    """A function that starts a cluster with settings of its own; all end with the test."""
    with _starter(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def start_module_cluster(tmp_path_factory, model_path):
    """As ``start_cluster``; all end with the last test of the module."""
    with _starter(tmp_path_factory) as start:
        yield start


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Has torch compute on one thread: two would spin for each other where the cores are shared."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
