"""`octavo bench paper`: the paper's comparisons on the real model, through the real services."""

import asyncio
from types import ModuleType
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from octavo import catalog
from octavo.cli import options
from octavo.cli.admin import AsJson
from octavo.cli.terminal import err, errors_shown, out
from octavo.errors import BenchFailed
from octavo.live.report import Report

NAMES = ("spaces", "sharing", "prefix", "swapping", "block-sizes")
QUICK = 2  # comparisons that a quick run makes


def _known(names: list[str] | None) -> list[str]:
    for name in names or ():
        if name not in NAMES:
            raise typer.BadParameter(f"{name!r} is no comparison; choose from {', '.join(NAMES)}")
    return names or []


Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        callback=_known,
        help=f"One of {', '.join(NAMES)}; may be given again. Default: all, or the first two with --quick.",
    ),
]
ScaleOption = Annotated[
    int,
    typer.Option(
        "--scale",
        callback=options.within(1, 16),
        help="Lengths, context and blocks are the paper's divided by this.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer requests, and Orca (Max) alone to compare with.")]


def paper(
    only: Only = None,
    scale: ScaleOption = 8,
    quick: Quick = False,
    model: options.Model = catalog.DEFAULT_MODEL,
    threads: options.Threads = None,
    as_json: AsJson = False,
) -> None:
    """Run the paper's comparisons on private clusters with little KV memory, beside the paper's own numbers."""
    with errors_shown():
        live = _live()
        lab = live.Lab(model, threads, live.Scale(scale), err, quick)
        reports = asyncio.run(live.compare(only or NAMES[: QUICK if quick else None], lab))
    if as_json:
        out.print_json(data={"scale": scale, "comparisons": [report.as_json() for report in reports]})
        return
    for report in reports:
        out.print(_table(report))
        out.print(f"[dim]{escape(report.load)}[/]\n", soft_wrap=True)


def _live() -> ModuleType:
    """The part that needs the extra."""
    try:
        from octavo.live import comparisons  # noqa: PLC0415 - of an optional extra
    except ModuleNotFoundError as fault:
        raise BenchFailed(f"octavo bench needs the package {fault.name}: pip install 'octavo[bench]'") from fault
    return comparisons


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, title=report.title, title_justify="left")
    for column in ("", "ours", "paper", "ours / paper", "unit"):
        table.add_column(column, justify="left" if column in {"", "unit"} else "right")
    for row in report.rows:
        paper_value = "" if row.paper is None else f"{row.paper:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.name, f"{row.ours:.4g}", paper_value, ratio, row.unit)
    return table
