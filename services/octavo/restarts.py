"""How often, and how soon, a service that ended is started again."""

from collections import deque
from dataclasses import dataclass, field

MAX_RESTARTS = 5
WINDOW_S = 60.0
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 5.0


@dataclass(slots=True)
class RestartBudget:
    """At most ``MAX_RESTARTS`` restarts in any ``WINDOW_S`` seconds, each after twice the delay of the one before."""

    total: int = 0
    _recent: deque[float] = field(default_factory=deque)  # times, in seconds

    def next_delay(self, now_s: float) -> float | None:
        """Seconds to wait before the next restart, which is counted; None if the budget is used up."""
        while self._recent and now_s - self._recent[0] > WINDOW_S:
            self._recent.popleft()
        if len(self._recent) >= MAX_RESTARTS:
            return None
        delay_s = min(FIRST_DELAY_S * 2.0 ** len(self._recent), MAX_DELAY_S)
        self._recent.append(now_s)
        self.total += 1
        return delay_s
