"""How fast the queue moves, to say when to come back."""

from collections import deque
from collections.abc import Callable

WINDOW_S = 30.0
MIN_WAIT_S, MAX_WAIT_S = 1.0, 120.0


class Flow:
    """Groups that left the queue in the last ``WINDOW_S`` seconds. ``now`` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since_s = now()
        self._left: deque[tuple[float, int]] = deque()  # when, and how many
        self._num_left = 0

    def note(self, num_groups: int) -> None:
        """So many groups left the queue; a negative number came back to it."""
        if num_groups:
            self._left.append((self._now(), num_groups))
            self._num_left += num_groups

    def seconds_for(self, num_groups: int) -> float:
        """About how long so many groups take to leave the queue; the longest where nothing moves."""
        now = self._now()
        while self._left and self._left[0][0] < now - WINDOW_S:
            self._num_left -= self._left.popleft()[1]
        elapsed_s = min(max(now - self._since_s, MIN_WAIT_S), WINDOW_S)
        if self._num_left <= 0:
            return MAX_WAIT_S if elapsed_s >= WINDOW_S else MIN_WAIT_S
        return min(max(num_groups * elapsed_s / self._num_left, MIN_WAIT_S), MAX_WAIT_S)
