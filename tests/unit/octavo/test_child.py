import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from octavo.child import LOG_TAIL_LINES, Child, rotate
from octavo.services import Service


def shell(script: str) -> Service:
    return Service("shell", "nowhere", ("/bin/sh", "-c", script))


def content(path: Path) -> str:
    return path.read_text() if path.exists() else ""


async def wait_for(path: Path) -> str:
    for _ in range(200):
        if text := content(path):
            return text
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} stayed empty")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("script", "how"), [("exit 3", "ended with exit code 3"), ("kill -9 $$", "was ended by SIGKILL")]
)
async def test_it_says_how_a_service_ended(tmp_path, script, how):
    child = await Child.start(shell(script), tmp_path / "log")
    assert await child.ended() == how


async def test_output_and_errors_go_to_the_log(tmp_path):
    child = await Child.start(shell("echo out; echo err >&2"), tmp_path / "log")
    await child.ended()
    assert child.log_tail() == "out\nerr"


async def test_only_the_end_of_a_long_log_is_shown(tmp_path):
    child = await Child.start(shell("seq 100000"), tmp_path / "log")
    await child.ended()
    lines = child.log_tail().splitlines()
    assert lines == [str(n) for n in range(100001 - LOG_TAIL_LINES, 100001)]


async def test_a_service_that_ends_when_asked_is_not_killed(tmp_path):
    script = f"trap 'exit 0' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done"
    child = await Child.start(shell(script), tmp_path / "log")
    await wait_for(tmp_path / "up")
    assert await child.stop(grace_s=10)
    assert await child.ended() == "ended with exit code 0"


async def test_a_service_that_does_not_end_when_asked_is_killed(tmp_path):
    script = f"trap '' TERM; echo up > {tmp_path}/up; while :; do sleep 0.01; done"
    child = await Child.start(shell(script), tmp_path / "log")
    await wait_for(tmp_path / "up")
    assert not await child.stop(grace_s=0.1)
    assert await child.ended() == "was ended by SIGKILL"


async def test_stopping_a_service_that_has_ended_is_no_error(tmp_path):
    child = await Child.start(shell("exit 0"), tmp_path / "log")
    await child.ended()
    assert await child.stop(grace_s=0.1)
    await child.kill()


async def test_a_terminals_interrupt_does_not_reach_a_service(tmp_path):
    child = await Child.start(shell("sleep 60"), tmp_path / "log")
    assert os.getpgid(child.pid) != os.getpgid(0)
    await child.kill()


async def test_a_service_does_not_outlive_a_parent_that_is_killed(tmp_path):
    script = (
        "import asyncio, pathlib, sys\n"
        "from octavo.child import Child\n"
        "from octavo.services import Service\n"
        "async def main():\n"
        f"    folder = pathlib.Path({str(tmp_path)!r})\n"
        "    child = await Child.start(Service('s', '', ('/bin/sleep', '60')), folder / 'log')\n"
        "    (folder / 'pid').write_text(str(child.pid))\n"
        "    await child.ended()\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    pid = int(await wait_for(tmp_path / "pid"))
    assert is_running(pid)
    parent.send_signal(signal.SIGKILL)
    await parent.wait()
    deadline = time.monotonic() + 5
    while is_running(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        await asyncio.sleep(0.01)


def test_a_leash_whose_parent_is_gone_starts_nothing(tmp_path):
    from octavo import leash

    somebody_else = "1"
    command = ("/usr/bin/touch", str(tmp_path / "started"))
    finished = subprocess.run([sys.executable, "-S", leash.__file__, somebody_else, *command], check=False)
    assert finished.returncode == 1
    assert not (tmp_path / "started").exists()


def test_the_log_of_the_run_before_is_kept(tmp_path):
    log = tmp_path / "kvmanager.log"
    rotate(log)
    log.write_text("before")
    rotate(log)
    assert not log.exists()
    assert (tmp_path / "kvmanager.log.1").read_text() == "before"
