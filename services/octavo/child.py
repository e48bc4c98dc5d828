"""One service as a child process that cannot outlive this one."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from octavo import leash
from octavo.services import Service

LOG_TAIL_BYTES = 4000
LOG_TAIL_LINES = 15


class Child:
    """A started service. Its output goes to a log file.

    It runs in a session of its own, so that Ctrl-C in a terminal reaches only this program, which ends the services in
    order. It must be started from the main thread: the kernel ties its life to the thread that started it.
    """

    def __init__(self, service: Service, process: asyncio.subprocess.Process, log: Path) -> None:
        self.service = service
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, service: Service, log: Path, environment: Mapping[str, str] | None = None) -> "Child":
        """Start ``service`` with its output appended to ``log``."""
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-S", leash.__file__, str(os.getpid()), *service.command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            )
        return cls(service, process, log)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait for the end; says how it ended."""
        code = await self._process.wait()
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    async def stop(self, grace_s: float) -> bool:
        """Ask it to end, and end it after ``grace_s`` seconds; says whether it ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
            return False
        return True

    async def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def log_tail(self) -> str:
        """The last lines of the log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


def rotate(log: Path) -> None:
    """Keep the log of the run before as ``NAME.1``."""
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))
