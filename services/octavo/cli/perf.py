"""`octavo perf`: where the time of a step goes."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import httpx
import typer
from rich.live import Live
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AsJson, Url
from octavo.cli.terminal import errors_shown, out
from octavo.data_folder import DataFolder
from octavo.errors import MetricsUnavailable
from octavo.step_times import Samples, StepTimes, parse_metrics, step_times

TIMEOUT_S = 10.0

Interval = Annotated[float, typer.Option(callback=options.within(0.1), help="Seconds that are looked at together.")]
Count = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="Intervals to show. Default: until Ctrl-C on a terminal, one elsewhere.",
        show_default=False,
    ),
]


def perf(
    data_dir: options.DataDir, url: Url = None, interval: Interval = 2.0, count: Count = None, as_json: AsJson = False
) -> None:
    """Show where the time of a step goes: the phases of computing, the gap, grants, journal and messages."""
    with errors_shown():
        address = url or DataFolder(data_dir).read_state().base_url
        wanted = count or (1 if as_json or not out.is_terminal else None)
        looks = _looks(address, interval, wanted)
        if as_json:
            for times in looks:
                out.print_json(data=None if times is None else asdict(times))
        elif out.is_terminal:
            with Live(console=out, auto_refresh=False) as live:
                for times in looks:
                    live.update(_shown(times, interval), refresh=True)
        else:
            for times in looks:
                out.print(_shown(times, interval))


def _looks(address: str, interval_s: float, count: int | None) -> Iterator[StepTimes | None]:
    with httpx.Client(base_url=address, timeout=TIMEOUT_S, trust_env=False) as client:
        before = _read(client)
        while count is None or count > 0:
            time.sleep(interval_s)
            after = _read(client)
            yield step_times(before, after)
            before = after
            count = None if count is None else count - 1


def _read(client: httpx.Client) -> Samples:
    try:
        answer = client.get("/metrics")
    except httpx.HTTPError as fault:
        raise MetricsUnavailable(f"{client.base_url}: {fault or type(fault).__name__}") from fault
    if not answer.is_success:
        raise MetricsUnavailable(f"{client.base_url}metrics answers HTTP {answer.status_code}")
    return parse_metrics(answer.text)


def _shown(times: StepTimes | None, interval_s: float) -> Table | str:
    if times is None:
        return f"no step within {interval_s:g} s"
    table = Table(box=None, pad_edge=False)
    whole_s = times.compute_s + times.gap_s
    table.add_column(f"mean of {times.num_steps} steps within {interval_s:g} s")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")

    def row(label: str, value_s: float) -> None:
        table.add_row(label, f"{value_s * 1000:.3f}", f"{value_s / whole_s:.1%}")

    row("computing", times.compute_s)
    for phase, value_s in times.phases_s.items():
        row(f"  {phase.replace('_', ' ')}", value_s)
    row("gap before it", times.gap_s)
    table.add_section()
    row("beside it: messages not covered", times.exchange_s)
    row("beside it: grant", times.grant_s)
    row("  journal", times.journal_s)
    return table
