"""What was measured, beside what the paper has."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One number. ``paper`` is ``None`` where the paper does not have it."""

    name: str
    ours: float
    paper: float | None
    unit: str

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return self.ours / self.paper if self.paper else None


@dataclass(frozen=True, slots=True)
class Report:
    """One comparison, and how it was loaded."""

    key: str
    title: str
    load: str
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        return {"key": self.key, "title": self.title, "load": self.load, "rows": rows}
