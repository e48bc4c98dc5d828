"""`octavo memory-simulator`: ten requests, one memory, two ways to hand it out."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli.admin import AsJson
from octavo.cli.terminal import err, errors_shown, out
from octavo.errors import FolderUnusable
from octavo.memory_simulator.page import document, page
from octavo.memory_simulator.simulation import Run, simulate
from octavo.memory_simulator.workload import DEFAULT, read_workload

BARS = " ▁▂▃▄▅▆▇█"

WorkloadFile = Annotated[
    Path,
    typer.Option(
        "--workload", help="JSON file with slots, max_len, page and requests_prompt_answer.", show_default=False
    ),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", help="Write the interactive page there; it needs no server.", show_default=False),
]


def memory_simulator(workload: WorkloadFile = DEFAULT, html: HtmlFile = None, *, as_json: AsJson = False) -> None:
    """Serve requests from long contiguous stretches and from pages, step by step (see also /simulator)."""
    with errors_shown():
        given = read_workload(workload)
        if html is not None:
            _write(html, page(given))
    if as_json:
        out.print_json(data=document(given))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("memory")
    for column in ("steps", "filled", "at once", "pauses"):
        table.add_column(column, justify="right")
    table.add_column("filled share over the steps", overflow="fold")
    for name, piece in ((f"stretches of {given.max_len}", given.max_len), (f"pages of {given.page}", given.page)):
        run = simulate(given, piece)
        figures = (run.num_steps, f"{run.utilization:.0%}", run.most_running, run.num_pauses)
        table.add_row(name, *map(str, figures), _bars(run))
    out.print(table)


def _bars(run: Run) -> str:
    return "".join(BARS[round(frame.utilization * (len(BARS) - 1))] for frame in run.frames)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise FolderUnusable(f"{path}: {fault.strerror}") from fault
    err.print(f"Open {path} in a browser.", markup=False, soft_wrap=True)
