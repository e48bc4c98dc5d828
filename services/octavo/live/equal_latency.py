"""At which request rates several systems have the same latency."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import geometric_mean

Point = tuple[float, float]  # requests a second, seconds per token


class Bound(StrEnum):
    """How a number that was found lies to the true one."""

    EXACT = ""
    AT_LEAST = "at least "
    AT_MOST = "at most "


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second that a system takes at a latency; the nearest sample where its curve does not come to it."""

    per_s: float
    bound: Bound = Bound.EXACT

    def over(self, other: "Rate") -> "Rate | None":
        """The ratio of two; ``None`` where their bounds leave it open."""
        opposite = {Bound.AT_LEAST: Bound.AT_MOST, Bound.AT_MOST: Bound.AT_LEAST, Bound.EXACT: Bound.EXACT}
        bounds = {self.bound, opposite[other.bound]} - {Bound.EXACT}
        if len(bounds) > 1:
            return None
        return Rate(self.per_s / other.per_s, next(iter(bounds), Bound.EXACT))


def common_latency(curves: Iterable[Sequence[Point]]) -> float:
    """A latency in the middle of all samples, on a logarithmic axis."""
    return geometric_mean(latency for points in curves for _, latency in points)


def rate_at(points: Sequence[Point], latency: float) -> Rate:
    """The highest rate at which a curve is at ``latency``, between its samples on logarithmic axes."""
    ordered = sorted(points)
    if ordered[-1][1] <= latency:
        return Rate(ordered[-1][0], Bound.AT_LEAST)
    for (r0, l0), (r1, l1) in reversed(list(pairwise(ordered))):
        if l0 <= latency < l1:
            return Rate(r0 * (r1 / r0) ** (math.log(latency / l0) / math.log(l1 / l0)))
    return Rate(ordered[0][0], Bound.AT_MOST)
