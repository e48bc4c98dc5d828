"""A Redis or Valkey of one's own, which can be killed, frozen and emptied."""

import signal
import subprocess
import time
from pathlib import Path

import redis

from octavo.redis_server import find_redis_server, redis_command


class ValkeyServer:
    """A server on a Unix socket in ``folder``, with or without an append-only file."""

    def __init__(self, folder: Path, *, append_only: bool = True) -> None:
        self.socket = folder / "r.sock"
        self.url = f"unix://{self.socket}"
        self._command = redis_command(find_redis_server(), self.socket, folder)
        if not append_only:
            self._command += ["--appendonly", "no"]
        self._process: subprocess.Popen[bytes] | None = None
        self.client = redis.Redis(unix_socket_path=str(self.socket))

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Ends it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self.client.close()
