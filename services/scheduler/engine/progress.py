"""Whether tokens advance."""

from collections.abc import Callable


class Progress:
    """Remembers when a replica last computed something, and what keeps it from doing so.

    ``now`` is a monotonic clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()  # since when tokens cannot advance, or when they last did
        self.trouble = "waiting for the gpuworker and the kvmanager"  # empty while connected

    def connected(self) -> None:
        """Both peers answer."""
        self.trouble = ""

    def disconnected(self, reason: str) -> None:
        """A peer does not answer. Time counts from the last progress."""
        self.trouble = reason

    def begin_work(self) -> None:
        """Work arrived at an idle replica: time counts from here, unless it is in trouble already."""
        if not self.trouble:
            self.note()

    def note(self) -> None:
        """Something was computed, or there is nothing to compute."""
        self._since = self._now()

    def stalled_s(self, *, has_work: bool) -> float:
        """For how long tokens could not advance; 0 for an idle replica without trouble."""
        return self._now() - self._since if has_work or self.trouble else 0.0
