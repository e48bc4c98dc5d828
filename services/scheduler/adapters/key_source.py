"""Where `--api-keys` says that keys are kept."""

import time
from pathlib import Path

from scheduler.adapters.key_file import KeyFile
from scheduler.adapters.key_redis import KeyRedis

REDIS_SCHEMES = ("redis://", "rediss://", "unix://")


def key_source(source: str) -> KeyFile | KeyRedis:
    """The keys of a file, or those of a Redis if ``source`` is its URL. Raises ``InvalidConfiguration``."""
    if source.startswith(REDIS_SCHEMES):
        return KeyRedis(source)
    return KeyFile(Path(source), time.monotonic)
