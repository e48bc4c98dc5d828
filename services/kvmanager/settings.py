"""What a kvmanager process is told, checked once."""

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from kvmanager.pool import JournalPolicy

_REDIS_SCHEMES = ("redis", "rediss", "unix")


class LogLevel(StrEnum):
    """What is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class SettingsRefused(ValueError):
    """A setting has a value that cannot be used. The message names the setting, the value and the limit."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``watermark`` and ``pin_budget`` are shares of the device blocks; ``instance`` names the process to the lease."""

    listen: str
    redis: str
    watermark: float = 0.01
    log_level: LogLevel = LogLevel.INFO
    instance: str = ""
    standby: bool = False
    lease_s: float = 3.0
    journal: JournalPolicy = field(default_factory=JournalPolicy)
    pin_budget: float = 0.25

    def __post_init__(self) -> None:
        if not 0 <= self.watermark < 1:
            raise SettingsRefused(f"watermark: {self.watermark} must be at least 0 and below 1")
        if not 0 <= self.pin_budget < 1:
            raise SettingsRefused(f"pin budget: {self.pin_budget} must be at least 0 and below 1")
        if urlsplit(self.redis).scheme not in _REDIS_SCHEMES:
            raise SettingsRefused(f"redis: {self.redis!r} must be a URL of the kind {', '.join(_REDIS_SCHEMES)}")
        if not self.listen:
            raise SettingsRefused("listen: must be unix:/path or host:port")
        if self.lease_s <= 0:
            raise SettingsRefused(f"lease: {self.lease_s} s must be more than 0")
        if self.journal.patience_s <= 0:
            raise SettingsRefused(f"journal patience: {self.journal.patience_s} s must be more than 0")
        if self.journal.snapshot_interval < 1:
            raise SettingsRefused(f"snapshot interval: {self.journal.snapshot_interval} must be at least 1 entry")
        if "#" in self.instance:
            raise SettingsRefused(f"instance: {self.instance!r} must not contain '#'")
