"""The data folder of a local cluster: what lies where, who holds it, and what runs on it.

::

    cluster.lock   held by the `octavo up` that runs here; its pid inside
    admin.key      the key of the admin API, for its owner alone
    cluster.json   the services that run, for `octavo status` and `octavo down`
    logs/          one file per service, and the one of the run before
    redis/         append-only file of the embedded Redis
    run/           sockets, unless their paths would be too long for the kernel
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from octavo.errors import AlreadyRunning, FolderUnusable, NotRunning

# sun_path holds 108 bytes with the closing zero; the longest socket name here is "kvmanager.sock".
MAX_RUN_DIR_BYTES = 90
# `octavo status` holds the lock for an instant while it looks; `octavo up` must not take that for a cluster.
LOCK_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class RunningService:
    """One service of a running cluster."""

    name: str
    pid: int | None  # None: not started by this cluster
    address: str
    log: str | None  # path
    restarts: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What `octavo up` leaves for other commands to read."""

    pid: int
    base_url: str
    services: tuple[RunningService, ...]


def default_data_dir() -> Path:
    """``$OCTAVO_DATA_DIR``, ``$XDG_DATA_HOME/octavo`` or ``~/.local/share/octavo``."""
    own = os.environ.get("OCTAVO_DATA_DIR")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "octavo"


class DataFolder:
    """A data folder; made when it is locked."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        self.redis = self.root / "redis"
        self.logs = self.root / "logs"
        self.run = self._run_dir()
        self._lock = self.root / "cluster.lock"
        self._state = self.root / "cluster.json"
        self._admin_key = self.root / "admin.key"

    def _run_dir(self) -> Path:
        inside = self.root / "run"
        if len(os.fsencode(inside)) <= MAX_RUN_DIR_BYTES:
            return inside
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"octavo-{os.getuid()}-{name}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder, with fresh sub-folders, until the end of the block.

        Raises ``AlreadyRunning``, or ``FolderUnusable`` if it cannot be made or written.
        """
        with self._open_lock() as lock:
            if not _lock_within(lock, LOCK_TIMEOUT_S):
                lock.seek(0)
                raise AlreadyRunning(
                    f"A cluster already runs on {self.root} (process {lock.read().strip() or '?'}). "
                    "End it with `octavo down`, or give this one a folder of its own with --data-dir."
                )
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            try:
                with _failures_told():
                    self._prepare()
                yield
            finally:
                self._state.unlink(missing_ok=True)
                shutil.rmtree(self.run, ignore_errors=True)

    def _open_lock(self) -> IO[str]:
        with _failures_told():
            self.root.mkdir(parents=True, exist_ok=True)
            return self._lock.open("a+")

    def _prepare(self) -> None:
        self._state.unlink(missing_ok=True)
        shutil.rmtree(self.run, ignore_errors=True)  # sockets of a cluster that was killed
        self.run.mkdir(mode=0o700)
        self.logs.mkdir(exist_ok=True)
        self.redis.mkdir(mode=0o700, exist_ok=True)

    def is_held(self) -> bool:
        """Whether an `octavo up` runs here."""
        if not self._lock.exists():
            return False
        with self._lock.open("a+") as lock:
            return not _try_lock(lock)

    def make_admin_key(self) -> str:
        """The key of the admin API: ``$OCTAVO_ADMIN_KEY``, the one of the run before, or a new random one."""
        key = os.environ.get("OCTAVO_ADMIN_KEY") or self._stored_admin_key() or secrets.token_urlsafe(32)
        fresh = self._admin_key.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(key + "\n")
        fresh.replace(self._admin_key)
        return key

    def read_admin_key(self) -> str:
        """The key of the cluster that runs here; raises ``NotRunning``."""
        key = self._stored_admin_key()
        if not key:
            raise NotRunning(f"{self._admin_key} holds no admin key; `octavo up` makes one. Or set OCTAVO_ADMIN_KEY.")
        return key

    def _stored_admin_key(self) -> str:
        try:
            return self._admin_key.read_text().strip()
        except FileNotFoundError:
            return ""

    def write_state(self, state: ClusterState) -> None:
        """Replace what other commands read, in one move."""
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(state), indent=2) + "\n")
        fresh.replace(self._state)

    def read_state(self) -> ClusterState:
        """What runs here; raises ``NotRunning``."""
        try:
            fields = json.loads(self._state.read_text()) if self.is_held() else None
        except FileNotFoundError:
            fields = None
        if fields is None:
            raise NotRunning(
                f"No cluster runs on {self.root}. `octavo up` starts one; --data-dir names another folder."
            )
        services = tuple(RunningService(**service) for service in fields.pop("services"))
        return ClusterState(**fields, services=services)


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FolderUnusable(
            f"The data folder cannot be used: {error.filename}: {error.strerror}. --data-dir names another one."
        ) from error


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_within(file: IO[str], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not _try_lock(file):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
