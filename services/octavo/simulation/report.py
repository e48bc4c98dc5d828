"""A reproduced figure: panels to draw, rows of ours against the paper's, and values for other programs."""

from dataclasses import dataclass, field
from typing import Any

from octavo.simulation.paper import Point


@dataclass(frozen=True, slots=True)
class Series:
    """One line, ours beside the paper's."""

    name: str
    ours: tuple[Point, ...]
    paper: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    y_limit: float | None = None
    has_log_axes: bool = False
    categories: tuple[str, ...] = ()  # then bars are drawn, and x of a point is the index of its category


@dataclass(frozen=True, slots=True)
class Row:
    """One number that both have."""

    name: str
    ours: float
    paper: float
    unit: str

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's; ``None`` where the paper has 0."""
        return self.ours / self.paper if self.paper else None


@dataclass(frozen=True, slots=True)
class Report:
    """A figure of the paper, run again."""

    figure: str
    title: str
    panels: tuple[Panel, ...]
    rows: tuple[Row, ...]
    values: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything but the lines."""
        rows = [
            {"name": row.name, "ours": row.ours, "paper": row.paper, "ratio": row.ratio, "unit": row.unit}
            for row in self.rows
        ]
        return {"figure": self.figure, "title": self.title, **self.values, "rows": rows}
