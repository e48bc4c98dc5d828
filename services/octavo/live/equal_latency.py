"""At which request rates several systems have the same latency."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

Space = TypeVar("Space")
Point = tuple[float, float]  # requests a second, seconds per token


def common_latency(curves: Mapping[Space, Sequence[Point]]) -> float | None:
    """A latency that every curve has somewhere: the middle, on a logarithmic axis, of those; ``None`` without one."""
    lowest = max(min(latency for _, latency in points) for points in curves.values())
    highest = min(max(latency for _, latency in points) for points in curves.values())
    return math.sqrt(lowest * highest) if lowest <= highest else None


def rate_at(points: Sequence[Point], latency: float) -> float:
    """The highest rate at which a curve crosses ``latency``, between its samples on logarithmic axes."""
    for (r0, l0), (r1, l1) in reversed(list(pairwise(sorted(points)))):
        if min(l0, l1) <= latency <= max(l0, l1):
            share = math.log(latency / l0) / math.log(l1 / l0) if l0 != l1 else 1.0
            return float(r0 * (r1 / r0) ** share)
    raise ValueError(f"the curve {points} does not come to a latency of {latency}")
