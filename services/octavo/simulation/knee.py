"""The rate that a server can take: where the normalized latency crosses a bound (paper §6.2)."""

from collections.abc import Callable, Iterator

from octavo.simulation.outcome import Outcome

LATENCY_BOUND_S = 0.5
"""Normalized latency in seconds per token at which curves are compared."""

_STEP = 1.1  # between the first rates that are tried

Run = Callable[[float], Outcome]
"""Simulates a rate; may give up once the bound is sure to be exceeded."""


def find_knee(run: Run, guess: float, tolerance: float = 0.01, bound_s: float = LATENCY_BOUND_S) -> float:
    """The rate in requests a second at which ``run`` crosses ``bound_s``, within ``tolerance`` of itself.

    ``guess`` only shortens the search: the bracket grows from it until the bound lies inside.
    """
    low, high = _bracket(run, guess, bound_s)
    while high / low > 1.0 + tolerance:
        middle = (low * high) ** 0.5
        if run(middle).normalized_latency_s > bound_s:
            high = middle
        else:
            low = middle
    return float((low * high) ** 0.5)


def _bracket(run: Run, guess: float, bound_s: float) -> tuple[float, float]:
    """Two neighbouring rates of a geometric row around ``guess`` with the bound between them."""
    rate = guess
    exceeds = run(rate).normalized_latency_s > bound_s
    for factor in _growing():
        other = rate / factor if exceeds else rate * factor
        if (run(other).normalized_latency_s > bound_s) is not exceeds:
            return min(rate, other), max(rate, other)
        rate = other
    raise AssertionError("the row of factors never ends")


def _growing() -> Iterator[float]:
    factor = _STEP
    while True:
        yield factor
        factor = factor**1.5
