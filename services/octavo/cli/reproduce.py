"""`octavo reproduce`: the figures of the PagedAttention paper, run again."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AsJson
from octavo.cli.terminal import errors_shown, out
from octavo.simulation.experiments import Effort
from octavo.simulation.figures import FIGURES
from octavo.simulation.plotting import draw
from octavo.simulation.report import Report, Row


def _known(figure: str) -> str:
    if figure not in FIGURES:
        raise typer.BadParameter(f"{figure!r} is not run again here; choose one of {', '.join(FIGURES)}")
    return figure


FigureNumber = Annotated[
    str, typer.Option("--figure", callback=_known, help=f"Number in the paper: {', '.join(FIGURES)}.")
]
Quick = Annotated[bool, typer.Option("--quick", help="Shorter traces and a coarser search.")]
Jobs = Annotated[int, typer.Option(callback=options.within(1), help="Processes that simulate.")]


def reproduce(
    figure: FigureNumber,
    plot_folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the plot, as PNG and SVG.", show_default=False)
    ] = None,
    quick: Quick = False,
    jobs: Jobs = 1,
    as_json: AsJson = False,
) -> None:
    """Run a figure of the paper again with the code that serves, and set our numbers beside the paper's."""
    report = FIGURES[figure](Effort(quick, jobs))
    with errors_shown():
        plots = [] if plot_folder is None else draw(report, plot_folder)
    if as_json:
        out.print_json(data=report.as_json())
        return
    out.print(_table(report))
    for path in plots:
        out.print(f"wrote {path}", soft_wrap=True)


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, title=f"Figure {report.figure}: {report.title}", title_justify="left")
    for column in ("", "ours", "paper", "ours / paper", "unit"):
        table.add_column(column, justify="left" if column in {"", "unit"} else "right")
    for row in report.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return row.name, f"{row.ours:.4g}", f"{row.paper:.4g}", ratio, row.unit
