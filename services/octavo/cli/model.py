"""`octavo model`: the models known by name."""

from typing import Annotated

import typer
from rich.table import Table

from octavo import catalog
from octavo.cli.terminal import errors_shown, out
from octavo.errors import ModelUnavailable
from octavo.progress import Stages

app = typer.Typer(no_args_is_help=True, help="List and fetch models.")

Name = Annotated[str, typer.Argument(help="A name from `octavo model list`.")]


@app.command("list")
def list_models() -> None:
    """Show the models that --model knows by name."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "model", "size", "fetched"):
        table.add_column(column)
    for model in catalog.CATALOG.values():
        path = catalog.cached_path(model)
        table.add_row(model.name, model.about, f"{model.size_bytes / 1e6:.0f} MB", str(path or "no"))
    out.print(table)


@app.command()
def fetch(name: Name = catalog.DEFAULT_MODEL) -> None:
    """Download a model, check its digest and print where it lies; does nothing if it is there."""
    with errors_shown():
        if name not in catalog.CATALOG:
            raise ModelUnavailable(f"{name!r} is not in the catalogue; known: {', '.join(catalog.CATALOG)}")
        with Stages(out) as stages, stages.stage("model", catalog.CATALOG[name].about):
            path = catalog.locate(name)
    out.print(str(path), soft_wrap=True, markup=False)
