import asyncio
import io
import os
import signal

import pytest
from rich.console import Console

from octavo import restarts, supervisor
from octavo.data_folder import DataFolder
from octavo.errors import ServiceFailed
from octavo.progress import Stages
from octavo.services import Service
from octavo.supervisor import Supervisor


class Cluster:
    """A supervisor of stand-ins and what it printed."""

    def __init__(self, folder: DataFolder, *services: Service) -> None:
        self.screen = io.StringIO()
        self.console = Console(file=self.screen, width=200)
        self.folder = folder
        self.supervisor = Supervisor(services, folder, self.console)

    async def start(self) -> None:
        with Stages(self.console) as stages:
            await self.supervisor.start(stages)

    async def drain(self, *, hurry: bool = False) -> None:
        event = asyncio.Event()
        if hurry:
            event.set()
        await self.supervisor.drain(event)

    def pid(self, name: str) -> int:
        return next(service.pid for service in self.folder.read_state().services if service.name == name)

    async def until(self, condition) -> None:
        for _ in range(500):
            if condition():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("it did not come about within 10 s")


@pytest.fixture
def folder(tmp_path):
    folder = DataFolder(tmp_path / "data")
    with folder.locked():
        yield folder


async def test_services_are_ended_last_started_first(folder, stand_ins):
    cluster = Cluster(folder, *(stand_ins.service(name) for name in ("a", "b", "c")))
    await cluster.start()
    await cluster.drain()
    assert [note for note in stand_ins.notes() if note.endswith("ended")] == ["c ended", "b ended", "a ended"]


async def test_each_stage_is_shown_with_its_seconds(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("a"))
    await cluster.start()
    await cluster.drain()
    assert " ✓ a " in cluster.screen.getvalue()
    assert " s  http://127.0.0.1:" in cluster.screen.getvalue()


async def test_what_runs_can_be_read_by_other_commands(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("a"), stand_ins.service("b"))
    await cluster.start()
    state = folder.read_state()
    assert (state.pid, state.base_url) == (os.getpid(), cluster.supervisor.base_url)
    assert [(service.name, service.restarts) for service in state.services] == [("a", 0), ("b", 0)]
    await cluster.drain()


async def test_a_service_that_ends_before_it_is_ready_fails_the_start_with_the_end_of_its_log(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("good"), stand_ins.service("bad", "broken"))
    with pytest.raises(
        ServiceFailed, match=r"(?s)bad ended with exit code 1 before it was ready.*this service is broken"
    ):
        await cluster.start()
    await cluster.drain()
    assert "good ended" in stand_ins.notes()


async def test_a_service_that_runs_elsewhere_is_only_waited_for(folder, stand_ins):
    elsewhere = stand_ins.service("elsewhere")
    other = Cluster(folder, elsewhere)
    await other.start()
    cluster = Cluster(folder, Service("elsewhere", elsewhere.address, ()), stand_ins.service("here"))
    await cluster.start()
    assert cluster.pid("elsewhere") is None
    await cluster.drain()
    assert [note for note in stand_ins.notes() if note.endswith("ended")] == ["here ended"]
    await other.drain()


async def test_a_service_elsewhere_that_never_answers_fails_the_start_long_before_one_that_loads(folder, monkeypatch):
    monkeypatch.setattr(supervisor, "ELSEWHERE_TIMEOUT_S", 0.2)
    cluster = Cluster(folder, Service("elsewhere", "redis://127.0.0.1:1", ()))
    with pytest.raises(ServiceFailed, match=r"elsewhere at redis://127.0.0.1:1 was not ready within 0.2 s"):
        await cluster.start()


async def test_a_killed_service_is_started_again_and_said_to_be(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("a"), stand_ins.service("b"))
    await cluster.start()
    watching = asyncio.create_task(cluster.supervisor.watch())
    killed = cluster.pid("a")
    os.kill(killed, signal.SIGKILL)
    await cluster.until(lambda: stand_ins.notes().count("a started") == 2)
    assert cluster.pid("a") != killed
    assert folder.read_state().services[0].restarts == 1
    assert f"a (process {killed}) was ended by SIGKILL" in cluster.screen.getvalue()
    assert "a says hello" in cluster.screen.getvalue()
    assert stand_ins.notes().count("b started") == 1
    watching.cancel()
    await cluster.drain()


async def test_a_service_that_keeps_ending_ends_the_cluster(folder, stand_ins, monkeypatch):
    monkeypatch.setattr(restarts, "MAX_RESTARTS", 2)
    cluster = Cluster(folder, stand_ins.service("a", "flaky"))
    await cluster.start()
    with pytest.raises(ServiceFailed, match=r"(?s)a ended more than .* times.*exit code 3.*a says hello"):
        await cluster.supervisor.watch()
    assert stand_ins.notes().count("a started") == 3
    await cluster.drain()


async def test_a_service_that_does_not_end_is_killed_and_named(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("a", "stubborn", stop_grace_s=0.2))
    await cluster.start()
    await cluster.drain()
    assert "a did not end within 0.2 s and was killed" in cluster.screen.getvalue()


async def test_a_hurried_end_waits_for_nobody(folder, stand_ins):
    cluster = Cluster(folder, stand_ins.service("a", "stubborn", stop_grace_s=60))
    await cluster.start()
    async with asyncio.timeout(5):
        await cluster.drain(hurry=True)
