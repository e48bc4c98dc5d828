"""`octavo status`: the services of a running cluster."""

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli import options
from octavo.cli.terminal import errors_shown, out
from octavo.data_folder import ClusterState, DataFolder
from octavo.probes import Health, probe

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def status(data_dir: options.DataDir, as_json: AsJson = False) -> None:
    """Show the services of the cluster that runs on the data folder. Exit code 0: all are ready."""
    with errors_shown():
        state = DataFolder(data_dir).read_state()
    healths = asyncio.run(_ask_all(state))
    if as_json:
        services = [
            {**asdict(service), **asdict(health)} for service, health in zip(state.services, healths, strict=True)
        ]
        out.print_json(data={"pid": state.pid, "base_url": state.base_url, "services": services})
    else:
        out.print(_table(state, healths))
    if not all(health.ready for health in healths):
        raise typer.Exit(1)


async def _ask_all(state: ClusterState) -> list[Health]:
    return await asyncio.gather(*(probe(service.address) for service in state.services))


def _table(state: ClusterState, healths: list[Health]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("service", "pid", "alive", "ready", "restarts", "address"):
        table.add_column(column, overflow="fold")
    for service, health in zip(state.services, healths, strict=True):
        ready = "[green]yes[/]" if health.ready else f"[red]no[/] ({health.detail})"
        alive = "[green]yes[/]" if health.alive else "[red]no[/]"
        table.add_row(service.name, str(service.pid or "-"), alive, ready, str(service.restarts), service.address)
    return table
