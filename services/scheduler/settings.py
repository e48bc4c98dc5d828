"""What the scheduler was asked for, checked once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from scheduler.core.order import SchedulingPolicy
from scheduler.core.preemption import PreemptionMode
from scheduler.errors import InvalidConfiguration

RANGES: Mapping[str, tuple[int, int]] = {
    "port": (0, 65535),
    "max_num_batched_tokens": (1, 2**20),
    "max_num_seqs": (1, 2**16),
    "max_model_len": (1, 2**31 - 1),
    "max_waiting": (1, 2**31 - 1),
    "max_waiting_tokens": (1, 2**31 - 1),
    "queue_timeout": (0, 86_400),
    "max_body_bytes": (1024, 2**31 - 1),
    "drain_timeout": (0, 86_400),
}
MIN_KEY_CHARS, MAX_KEY_CHARS = 16, 512
ADDRESS = re.compile(r"unix:/.+|[^:/\s]+:\d{1,5}|\[[0-9a-fA-F:.]+\]:\d{1,5}")


class LogLevel(StrEnum):
    """How much is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Raises ``InvalidConfiguration`` that names the flag, its value and what is accepted."""

    host: str
    port: int  # 0 takes a free one
    kvmanager: str  # gRPC target
    worker: str  # gRPC target
    model: Path
    served_model_name: str
    max_num_batched_tokens: int
    max_num_seqs: int
    preemption_mode: PreemptionMode
    overlap: bool  # each step is prepared while the one before computes
    max_model_len: int | None  # tokens; None: the worker's
    scheduling_policy: SchedulingPolicy
    max_waiting: int  # sequences
    max_waiting_tokens: int | None  # None: no limit
    queue_timeout: float  # seconds; 0: none
    api_keys: str | None  # file or URL of Redis; None: inference is open
    max_body_bytes: int
    drain_timeout: float  # seconds
    log_level: LogLevel
    admin_key: str | None = field(default=None, repr=False)  # None: administration is switched off

    def __post_init__(self) -> None:
        """Checks each value, then what spans more than one flag."""
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidConfiguration(f"{_flag(name)} is {value}, but must be from {low} to {high}")
        for flag, address in (("--kvmanager", self.kvmanager), ("--worker", self.worker)):
            if "," in address:
                raise InvalidConfiguration(f"{flag} is {address!r}, but one address is supported")
            if not ADDRESS.fullmatch(address):
                raise InvalidConfiguration(f"{flag} is {address!r}, but must be unix:/path or host:port")
        if self.admin_key is not None and not MIN_KEY_CHARS <= len(self.admin_key) <= MAX_KEY_CHARS:
            raise InvalidConfiguration(
                f"--admin-key has {len(self.admin_key)} characters, but must have {MIN_KEY_CHARS} to {MAX_KEY_CHARS}"
            )
        if not self.served_model_name.strip():
            raise InvalidConfiguration(f"--served-model-name is {self.served_model_name!r}, but must not be blank")
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise InvalidConfiguration(
                f"--max-num-seqs is {self.max_num_seqs}, but must be at most --max-num-batched-tokens, "
                f"which is {self.max_num_batched_tokens}"
            )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def default_model_name(model: Path) -> str:
    """A file's name without its ending, or a folder's name."""
    return model.stem if model.suffix == ".gguf" else model.resolve().name
