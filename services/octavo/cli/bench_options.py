"""The options of `octavo bench`: their meaning and units."""

from pathlib import Path
from typing import Annotated

import typer

from octavo.bench.workload import RECIPES
from octavo.cli import options

Workload = Annotated[
    str, typer.Option(help=f"What to send: {', '.join(RECIPES)}.", metavar="NAME", rich_help_panel="Load")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="Recorded requests instead: Azure 2023 or lengths as CSV, Mooncake as JSON lines.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
NumRequests = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="Requests to send. Default: the workload's number, or all of a trace.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="Closed loop: this many at once, the next when one ends. Default: the workload's.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        callback=options.within(0.001),
        help="Open loop: Poisson arrivals, this many a second, however long the answers take.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(
        help="A sweep: one run for each rate, as in 1,2,4.", rich_help_panel="Load", show_default=False, metavar="LIST"
    ),
]
Seed = Annotated[int, typer.Option(help="Of texts, lengths and arrivals.", rich_help_panel="Load")]
WarmUp = Annotated[
    int,
    typer.Option("--warm-up", callback=options.within(0), help="Requests before that do not count."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.", show_default=False)]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", help="Draw the runs into this file (.png, .svg, .pdf).", show_default=False)
]
SloTtft = Annotated[
    float | None,
    typer.Option(callback=options.within(0), help="Objective: milliseconds to the first token.", show_default=False),
]
SloTpot = Annotated[
    float | None,
    typer.Option(callback=options.within(0), help="Objective: milliseconds per output token.", show_default=False),
]
ModelName = Annotated[
    str | None,
    typer.Option(help="Name of the model in requests. Default: the first that it lists.", show_default=False),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="For servers without /tokenize: a server of the same model that has it, or a Hugging Face folder.",
        show_default=False,
    ),
]
