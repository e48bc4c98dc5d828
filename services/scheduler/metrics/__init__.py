"""What the scheduler counts and times, for Prometheus. Nothing here knows a prompt, a key or a user's name."""

from scheduler.metrics.exposition import Exposition
from scheduler.metrics.instruments import Instruments
from scheduler.metrics.measured import MeasuredGenerator, MeasuredMemory, MeasuredWorker

__all__ = ["Exposition", "Instruments", "MeasuredGenerator", "MeasuredMemory", "MeasuredWorker"]
