"""What the paper shows: its figures, read from the vectors of the PDF, and its printed values (``data/SOURCE.md``)."""

import csv
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Any

from octavo.simulation.knee import LATENCY_BOUND_S
from octavo.simulation.spaces import SpaceName

_DATA = files("octavo.simulation") / "data"

SERIES_OF = {
    SpaceName.FT: "FasterTransformer",
    SpaceName.MAX: "Orca (Max)",
    SpaceName.POW2: "Orca (Pow2)",
    SpaceName.ORACLE: "Orca (Oracle)",
    SpaceName.PAGED: "vLLM",
}
"""What the paper calls each space."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """One series of a figure. ``points`` end where the line leaves the axes, if it does."""

    points: tuple[Point, ...]

    def knee(self, bound: float = LATENCY_BOUND_S) -> float:
        """Where the line crosses ``bound``; the last point if it stays below."""
        for (x0, y0), (x1, y1) in pairwise(self.points):
            if y0 <= bound < y1:
                return x0 + (x1 - x0) * (bound - y0) / (y1 - y0)
        return self.points[-1][0]


@cache
def curves(figure: str) -> dict[str, Curve]:
    """The series of a figure or panel, such as ``fig12a``, by name."""
    points: dict[str, list[Point]] = {}
    with (_DATA / "figures.csv").open() as lines:
        for row in csv.DictReader(lines):
            if row["figure"].split("_")[0] == figure:
                points.setdefault(row["series"], []).append((float(row["x"]), float(row["y"])))
    return {name: Curve(tuple(sorted(series))) for name, series in points.items()}


@cache
def printed() -> dict[str, Any]:
    """The values that the paper prints in tables, bars and text."""
    values: dict[str, Any] = json.loads((_DATA / "printed_values.json").read_text())["printed_values"]
    return values
