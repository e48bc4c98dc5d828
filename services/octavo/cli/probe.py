"""`octavo probe`: health checks of containers."""

import asyncio
from typing import Annotated

import typer

from octavo.cli import options
from octavo.cli.terminal import out
from octavo.probes import probe as ask

Address = Annotated[
    str,
    typer.Argument(
        help="http://HOST:PORT is asked for /ready; redis://… and unix://… are Redis URLs; anything else is a gRPC "
        "target, unix:/PATH or HOST:PORT."
    ),
]
Timeout = Annotated[float, typer.Option(callback=options.within(0.01), help="Seconds to wait for the answer.")]


def probe(address: Address, timeout: Timeout = 2.0) -> None:
    """Ask one service whether it is ready. Exit code 0: ready, 1: alive but not ready, 2: no answer."""
    health = asyncio.run(ask(address, timeout))
    out.print(("ready" if health.ready else "not ready") + f": {health.detail}", markup=False)
    if not health.ready:
        raise typer.Exit(1 if health.alive else 2)
