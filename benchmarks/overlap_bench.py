"""What the control plane costs: the gap between two steps and each process's CPU time, with and without overlap.

One Redis, kvmanager and gpuworker, and in turn a scheduler that overlaps steps and one that does not. Both stream the
same greedy completions, whose texts must be equal. Gap and step are the worker's own, read from the scheduler's
metrics; CPU time is user and system, of all threads of a process.

``python benchmarks/overlap_bench.py [--streams 32] [--tokens 128] [--rounds 5] [--threads 2]``
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from octavo import catalog
from octavo.bench.private_cluster import plain_settings
from octavo.data_folder import DataFolder
from octavo.services import Service, local_cluster
from octavo.settings import Dtype, claim_port

PROMPT = "List ten things that number {} makes a mathematician think of, one in each line."
CONTROL_PLANE = ("redis", "kvmanager", "scheduler")
START_TIMEOUT_S = 120.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Round:
    """One run of all streams."""

    texts: tuple[str, ...]
    tokens_per_s: float
    step_ms: float  # median
    gap_ms: float  # median
    mean_gap_share: float  # of gap and step together
    cpu_s: Mapping[str, float]  # by process
    num_steps: int

    @property
    def control_share(self) -> float:
        """CPU time of the control plane for each of the worker's."""
        return sum(self.cpu_s[name] for name in CONTROL_PLANE) / self.cpu_s["gpuworker"]


class Machine:
    """The services that stay, and a scheduler for each round."""

    def __init__(self, services: tuple[Service, ...], logs: Path) -> None:
        self._services = services
        self._logs = logs
        self.pids: dict[str, int] = {}
        self.url = services[-1].address

    @contextmanager
    def running(self, name: str, environment: Mapping[str, str] | None = None) -> Iterator[None]:
        """One of the services."""
        service = next(service for service in self._services if service.name == name)
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                service.command,
                env={**os.environ, **service.environment, **(environment or {})},
                stdout=log,
                stderr=log,
            )
        self.pids[name] = process.pid
        try:
            yield
        finally:
            process.terminate()
            process.wait()

    def wait_ready(self) -> None:
        """Until the scheduler can advance tokens."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            try:
                if httpx.get(f"{self.url}/ready").status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        raise SystemExit(f"not ready after {START_TIMEOUT_S:g} s; see {self._logs}")

    def cpu_s(self) -> dict[str, float]:
        """User and system time of each process."""
        return {name: _cpu_s(pid) for name, pid in self.pids.items()}


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def metrics(url: str) -> dict[tuple[str, str], float]:
    """By name and bucket."""
    page = httpx.get(f"{url}/metrics").text
    families = text_string_to_metric_families(page)
    return {(s.name, s.labels.get("le", "")): s.value for family in families for s in family.samples}


def median(name: str, before: Mapping[tuple[str, str], float], after: Mapping[tuple[str, str], float]) -> float:
    """The median of a histogram's observations between two pages, by interpolation within its bucket."""
    counts = {float(key[1]): after[key] - before.get(key, 0.0) for key in after if key[0] == f"{name}_bucket"}
    bounds = sorted(counts)
    half = counts[bounds[-1]] / 2
    for low, high in pairwise([0.0, *bounds]):
        below = counts.get(low, 0.0)
        if counts[high] >= half:
            return low + (high - low) * (half - below) / max(counts[high] - below, 1.0)
    return bounds[-1]


async def stream(client: httpx.AsyncClient, url: str, index: int, salt: str, num_tokens: int) -> bytes:
    """The raw events of one completion."""
    body = {
        "prompt": PROMPT.format(index),
        "max_tokens": num_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "cache_salt": salt,
    }
    async with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        return b"".join([chunk async for chunk in response.aiter_raw()])


def text_of(events: bytes) -> str:
    """The whole text of a stream."""
    data = [line.removeprefix(b"data: ") for line in events.split(b"\n\n") if line]
    return "".join(choice["text"] for line in data if line != b"[DONE]" for choice in json.loads(line)["choices"])


async def play(machine: Machine, num_streams: int, num_tokens: int, salt: str) -> Round:
    """All streams at once."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=None, limits=limits) as client:
        await stream(client, machine.url, 0, f"{salt} warm", 8)
        before, cpu_before, started_s = metrics(machine.url), machine.cpu_s(), time.perf_counter()
        streams = [stream(client, machine.url, index, salt, num_tokens) for index in range(num_streams)]
        raw = await asyncio.gather(*streams)
    elapsed_s, cpu_after, after = time.perf_counter() - started_s, machine.cpu_s(), metrics(machine.url)

    def delta(name: str) -> float:
        return after[name, ""] - before.get((name, ""), 0.0)

    gap_s, step_s = delta("octavo_step_gap_seconds_sum"), delta("octavo_step_seconds_sum")
    return Round(
        texts=tuple(map(text_of, raw)),
        tokens_per_s=num_streams * num_tokens / elapsed_s,
        step_ms=1e3 * median("octavo_step_seconds", before, after),
        gap_ms=1e3 * median("octavo_step_gap_seconds", before, after),
        mean_gap_share=gap_s / (gap_s + step_s),
        cpu_s={name: cpu_after[name] - cpu_before[name] for name in cpu_after},
        num_steps=int(delta("octavo_step_seconds_count")),
    )


def measure(machine: Machine, num_streams: int, num_tokens: int, num_rounds: int) -> dict[bool, list[Round]]:
    """Rounds with and without overlap, in turn. Raises ``SystemExit`` where the texts differ."""
    rounds: dict[bool, list[Round]] = {False: [], True: []}
    for index in range(num_rounds):
        for overlaps in (False, True):
            with machine.running("scheduler", {"OCTAVO_OVERLAP": str(overlaps)}):
                machine.wait_ready()
                salt = f"{index} {overlaps}"
                rounds[overlaps].append(asyncio.run(play(machine, num_streams, num_tokens, salt)))
    if len({played.texts for played in (*rounds[False], *rounds[True])}) > 1:
        raise SystemExit("the texts differ between rounds")
    return rounds


def show(rounds: Mapping[bool, list[Round]]) -> None:
    """One column with overlap, one without; medians over the rounds."""
    table = Table("median of rounds", "without overlap", "with overlap", box=None)

    def row(name: str, value: str, of: "list[list[float]]") -> None:
        table.add_row(name, *(value.format(statistics.median(values)) for values in of))

    both = (rounds[False], rounds[True])
    row("output tokens per second", "{:.0f}", [[r.tokens_per_s for r in each] for each in both])
    row("step, median, ms", "{:.2f}", [[r.step_ms for r in each] for each in both])
    row("gap, median, ms", "{:.3f}", [[r.gap_ms for r in each] for each in both])
    row("gap of the step, median, %", "{:.2f}", [[100 * r.gap_ms / r.step_ms for r in each] for each in both])
    row("gaps of all time, %", "{:.2f}", [[100 * r.mean_gap_share for r in each] for each in both])
    for name in rounds[True][0].cpu_s:
        values = [[1e6 * r.cpu_s[name] / r.num_steps for r in each] for each in both]
        row(f"CPU of {name} per step, µs", "{:.0f}", values)
    row("control plane of the worker's CPU, %", "{:.1f}", [[100 * r.control_share for r in each] for each in both])
    Console().print(table)


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default=catalog.DEFAULT_MODEL)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128, help="of each stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--dtype", type=Dtype, default=Dtype.AUTO)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = DataFolder(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-bench-"))))
        settings = replace(
            plain_settings(given.model, given.threads),
            port=claim_port("127.0.0.1", 0),
            data_dir=folder.root,
            kv_memory="512MiB",
            max_num_seqs=max(64, given.streams),
            dtype=given.dtype,
            drain_timeout_s=1.0,
        )
        stack.enter_context(folder.locked())
        services = local_cluster(settings, catalog.locate(settings.model), folder, "admin-key-of-a-bench")
        machine = Machine(services, folder.root)
        for name in ("redis", "kvmanager", "gpuworker"):
            stack.enter_context(machine.running(name))
        show(measure(machine, given.streams, given.tokens, given.rounds))


if __name__ == "__main__":
    main()
