"""The loop that drives requests through plan, grant, execute and commit."""

from scheduler.engine.administration import Administration
from scheduler.engine.config import EngineConfig
from scheduler.engine.engine import Engine

__all__ = ["Administration", "Engine", "EngineConfig"]
