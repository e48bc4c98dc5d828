"""Measurements from beginning to end, with progress shown as they go."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from octavo.bench.gauges import GaugeReader
from octavo.bench.loads import LoadOptions, Target
from octavo.bench.private_cluster import plain_settings, private_cluster
from octavo.bench.prompts import CORPUS
from octavo.bench.records import RequestRecord
from octavo.bench.results import RunResult
from octavo.bench.run import Bench
from octavo.bench.server import discover, open_session
from octavo.bench.summary import Objectives
from octavo.bench.workload import Workload
from octavo.settings import ClusterSettings

__all__ = ["measure", "measure_private", "plain_settings"]


async def measure(
    target: Target, loads: Sequence[LoadOptions], objectives: Objectives, num_warm_up: int, console: Console
) -> list[RunResult]:
    """Runs ``loads`` one after the other. Raises ``BenchFailed``."""
    async with open_session(target.url, target.api_key) as session:
        server = await discover(session, target.url, target.model, CORPUS.read_text())
        bench = Bench(session, server, target.tokenizer, GaugeReader(session))
        if num_warm_up:
            await bench.warm_up(num_warm_up)
        results = []
        for load in loads:
            with _progress(console) as bar:
                results.append(await bench.run(load, objectives, bar.start, bar.count))
        return results


async def measure_private(
    settings: ClusterSettings, loads: Sequence[LoadOptions], num_warm_up: int, console: Console
) -> list[RunResult]:
    """The same on a cluster that is started for it and ended after it. Raises ``OctavoError``."""
    async with private_cluster(settings, console) as url:
        return await measure(Target(url=url), loads, Objectives(), num_warm_up, console)


class _Bar:
    """Counts the ends of requests and the tokens that they brought."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, told="")
        self._num_tokens = self._num_errors = 0

    def start(self, workload: Workload) -> None:
        self._progress.update(self._task, description=workload.name, total=len(workload.shapes))

    def count(self, record: RequestRecord) -> None:
        self._num_tokens += record.num_output_tokens
        self._num_errors += bool(record.error)
        told = f"{self._num_tokens} tokens" + (f", [red]{self._num_errors} errors[/]" if self._num_errors else "")
        self._progress.update(self._task, advance=1, told=told)


@contextmanager
def _progress(console: Console) -> Iterator[_Bar]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    progress = Progress(
        *columns,
        TextColumn("{task.fields[told]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        refresh_per_second=4,  # drawing costs time that the server could have
    )
    with progress:
        yield _Bar(progress)
