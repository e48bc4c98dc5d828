"""What the commands share: the two consoles and how an error ends a command."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape

from octavo.errors import OctavoError

out = Console(highlight=False)
err = Console(highlight=False, stderr=True)


@contextmanager
def errors_shown() -> Iterator[None]:
    """Show an ``OctavoError`` as a message and end the command with exit code 1."""
    try:
        yield
    except OctavoError as fault:
        err.print(f"[bold red]error:[/] {escape(str(fault))}", soft_wrap=True)
        raise typer.Exit(1) from fault
