"""The engine's settings."""

from dataclasses import dataclass, field

from scheduler.core.queue_limits import QueueLimits
from scheduler.core.shape import SchedulerConfig


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine may accept, and how long it waits for what."""

    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    max_model_len: int | None = None  # tokens; lowers the worker's own limit
    queue: QueueLimits = field(default_factory=QueueLimits)  # beyond it new requests are turned away
    queue_timeout_s: float = 0.0  # a request without a token for so long is ended; 0: none is
    stall_after_s: float = 5.0  # with work and without a token for so long, the engine is not ready
    patience_s: float = 15.0  # when tokens could not advance for so long, new requests are turned away
    min_backoff_s: float = 0.05  # between attempts to reconnect, doubling
    max_backoff_s: float = 1.0
    overlaps: bool = True  # steps are planned while the one before computes
    deployment_seed: bytes = b""  # keeps prefix hashes of deployments apart
