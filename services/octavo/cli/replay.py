"""`octavo replay`: step through the journal and see the pool as it was."""

import sys
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.text import Text

from octavo.cli import options
from octavo.cli.admin import AdminKey, AsJson, PoolId, Url, admin_client
from octavo.cli.pools import pool_table
from octavo.cli.steps import events
from octavo.cli.terminal import out
from octavo.pool_picture import num_cells_for, picture

Step = Annotated[
    int, typer.Option(callback=options.within(0), help="Step to begin with. Default: the last.", show_default=False)
]


def replay(
    data_dir: options.DataDir,
    url: Url = None,
    admin_key: AdminKey = None,
    pool: PoolId = None,
    step: Step = 0,
    as_json: AsJson = False,
) -> None:
    """Show what the pool looked like after a step. On a terminal, step on with n and back with p; q ends."""
    with admin_client(data_dir, url, admin_key) as client:

        def fetch(step_id: int) -> dict[str, Any]:
            return client.get("/replay", pool=pool, step=step_id, num_cells=num_cells_for(out.width))

        if as_json:
            out.print_json(data=fetch(step))
        elif sys.stdin.isatty() and out.is_terminal:
            step_through(fetch, step, pressed_keys(), out)
        else:
            out.print(_page(fetch(step), out.width))


def step_through(fetch: Callable[[int], dict[str, Any]], step: int, keys: Iterator[str], console: Console) -> None:
    """Shows a step, then for each key the next (n) or the previous one (p), until q."""
    past = fetch(step)
    while True:
        console.clear()
        console.print(_page(past, console.width))
        console.print(Text("\n n next step   p previous step   q quit", "dim"))
        shown = past["pool"]["last_step_id"]
        key = next(keys, "q")
        wanted = {"n": shown + 1, "p": shown - 1}.get(key, shown)
        if key in {"q", "\x03", "\x04"}:
            return
        if past["first_step_id"] <= wanted <= past["last_step_id"] and wanted != shown:
            past = fetch(wanted)


def pressed_keys() -> Iterator[str]:
    """Keys as they are pressed on the terminal, without Enter."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        while True:
            tty.setcbreak(descriptor)
            key = sys.stdin.read(1)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
            if not key:
                return
            yield key
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _page(past: dict[str, Any], width: int) -> Group:
    pool, step = past["pool"], past["step"]
    reach = (
        f"after step {pool['last_step_id']}; the journal reaches from {past['first_step_id']} to {past['last_step_id']}"
    )
    told = events(step) if step else ["what the step did lies before the journal"]
    tables = [
        f"sequence {sequence['sequence_id']} on the {sequence['tier']}: {sequence['num_slots']} slots in blocks "
        + " ".join(str(entry["physical"]) for entry in sequence["blocks"])
        for sequence in past["sequences"]
    ]
    return Group(
        Text(reach, "bold"),
        Text("; ".join(told) or "went on without moving anything"),
        pool_table(pool),
        "",
        picture(past["map"], width),
        *(Text(line, overflow="ellipsis", no_wrap=True) for line in tables),
    )
