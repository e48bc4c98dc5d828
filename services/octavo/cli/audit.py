"""`octavo audit`: do all views of a pool agree?"""

import typer
from rich.markup import escape
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AdminKey, AsJson, PoolId, Url, admin_client
from octavo.cli.terminal import out


def audit(
    data_dir: options.DataDir,
    url: Url = None,
    admin_key: AdminKey = None,
    pool: PoolId = None,
    as_json: AsJson = False,
) -> None:
    """Check every invariant, and compare memory, Redis and the worker. Repairs nothing.

    Exit code 0: all agree, 1: something was found, 2: nothing was found, but a view could not be compared.
    """
    with admin_client(data_dir, url, admin_key) as client:
        report = client.post("/audit", pool=pool)
    findings, not_compared = report["findings"], report["not_compared"]
    if as_json:
        out.print_json(data=report)
    else:
        out.print(
            f"pool {report['pool_id']}, epoch {report['epoch']}, step {report['step_id']}: "
            f"{report['num_checked_blocks']} blocks and {report['num_checked_sequences']} sequences checked"
        )
        if findings:
            table = Table(box=None, pad_edge=False)
            table.add_column("owner", style="bold red")
            table.add_column("finding", overflow="fold")
            for finding in findings:
                table.add_row(finding["owner"], escape(finding["message"]))
            out.print(table)
        for note in not_compared:
            out.print(f"[yellow]not compared:[/] {escape(note)}")
        if not findings and not not_compared:
            out.print("[green]memory, Redis and the worker agree[/]")
    if findings or not_compared:
        raise typer.Exit(1 if findings else 2)
