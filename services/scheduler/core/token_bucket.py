"""A rate limit that lets short bursts pass. Time is an argument, in seconds of a monotonic clock."""


class TokenBucket:
    """Fills at ``per_minute`` and holds as much as a minute brings. It can be overdrawn, and fills up from there."""

    def __init__(self, per_minute: int, now_s: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._at_s = now_s

    def level(self, now_s: float) -> float:
        """What can be taken now; negative if it is overdrawn."""
        return min(float(self.per_minute), self._level + (now_s - self._at_s) * self.per_minute / 60)

    def take(self, amount: float, now_s: float) -> None:
        """Takes ``amount``, whatever there is."""
        self._level = self.level(now_s) - amount
        self._at_s = now_s

    def seconds_until(self, amount: float, now_s: float) -> float:
        """How long until ``amount`` can be taken without overdrawing, or all it holds if that is less; 0: now."""
        missing = min(amount, self.per_minute) - self.level(now_s)
        return max(0.0, missing * 60 / self.per_minute)
