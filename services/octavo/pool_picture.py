"""A pool as a grid of cells, one per block or bucket of blocks."""

from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Look:
    """How a cell looks with colours and without."""

    name: str
    glyph: str
    style: str


USED = Look("used", "█", "green")
SHARED = Look("shared", "▓", "magenta")
CACHED = Look("cached", "▒", "cyan")
PINNED = Look("pinned", "◆", "yellow")
FREE = Look("free", "·", "bright_black")
LOOKS = (USED, SHARED, CACHED, PINNED, FREE)

MAX_ROWS = 24


def num_cells_for(width: int) -> int:
    """Cells that fill a terminal of ``width`` columns."""
    return min(4096, max(1, width - 2) * MAX_ROWS)


def picture(pool_map: dict[str, Any], width: int) -> Group:
    """The grid and its legend, for a terminal of ``width`` columns."""
    per_cell, num_blocks = pool_map["blocks_per_cell"], pool_map["num_blocks"]
    looks = [_look(pool_map, cell, min(per_cell, num_blocks - cell * per_cell)) for cell in range(_num_cells(pool_map))]
    columns = max(1, width - 2)
    rows = [looks[start : start + columns] for start in range(0, len(looks), columns)]
    return Group(*(_row(row) for row in rows), _legend(per_cell))


def _num_cells(pool_map: dict[str, Any]) -> int:
    return len(pool_map["num_used"])


def _look(pool_map: dict[str, Any], cell: int, size: int) -> Look:
    """What most blocks of a cell are; a pin or a shared block is shown where it is half of them."""
    used, shared, cached, pinned = (
        pool_map[name][cell] for name in ("num_used", "num_shared", "num_cached", "num_pinned")
    )
    if pinned and 2 * pinned >= size:
        return PINNED
    if 2 * (used + cached) < size:
        return FREE
    if cached > used:
        return CACHED
    return SHARED if 2 * shared >= used else USED


def _row(looks: list[Look]) -> Text:
    text = Text(" ")
    for look in looks:
        text.append(look.glyph, look.style)
    return text


def _legend(per_cell: int) -> Text:
    text = Text("\n ")
    for look in LOOKS:
        text.append(look.glyph, look.style)
        text.append(f" {look.name}   ")
    text.append("one cell is one block" if per_cell == 1 else f"one cell is {per_cell} blocks", "dim")
    return text
