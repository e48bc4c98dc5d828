"""Show the stages of a start: live on a terminal, one plain line per finished stage elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

NAME_WIDTH = 12


class Stages:
    """Stages that may overlap. Used as a context manager around all of them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[name]:<" + str(NAME_WIDTH) + "}"),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.description}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the live display; finished stages stay on the screen."""
        self._live.stop()

    @contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        """One stage: a spinner while the block runs, a line with its seconds when it ends well."""
        started_s = time.monotonic()
        task = self._live.add_task(escape(detail), name=name, total=None)
        try:
            yield
        finally:
            self._live.remove_task(task)
        taken_s = time.monotonic() - started_s
        self._console.print(
            f"  [green]✓[/] {name:<{NAME_WIDTH}} {taken_s:6.1f} s  [dim]{escape(detail)}", soft_wrap=True
        )
