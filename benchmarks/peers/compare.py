"""Octavo beside other servers: the same workloads on the same model file, in turn, as ratios.

    python benchmarks/peers/compare.py [--peers llama.cpp,openvino] [--workloads single,batch] [--rounds 5]

Every peer is installed from PyPI into an environment of its own below the cache folder, once; llama.cpp is compiled for
this machine, which takes minutes. All servers run at once and idle while another is measured. Each round sends every
workload to every server, beginning with another server each time, with text that no round before had. A ratio is the
median over the rounds of Octavo's figure over the peer's in the same round, so that 2.0 is twice as good. Writes
FILE.json and FILE.md. Peers that cannot be had are named with the reason.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from peers import CONTEXT_TOKENS, MAX_SEQS, PEERS, Launch, PeerUnavailable, install, peers_dir, running
from rich.console import Console

from octavo import catalog
from octavo.bench.loads import LoadOptions, Target
from octavo.bench.private_cluster import plain_settings, private_cluster
from octavo.bench.session import measure
from octavo.bench.summary import Objectives, Summary
from octavo.errors import BenchFailed
from octavo.settings import ClusterSettings, claim_port

console = Console(stderr=True, highlight=False)
OCTAVO = "octavo"


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure of which more is better; ``unit`` names what ``value`` counts."""

    unit: str
    value: Callable[[Summary], float]


def _first_token_rate(summary: Summary) -> float:
    return 1 / summary.ttft.p50 if summary.ttft else 0.0


MEASURES: Mapping[str, tuple[Measure, ...]] = {
    "single": (
        Measure("decoded tokens/s", lambda summary: summary.decode_tokens_per_s or 0.0),
        Measure("1/s to the first token", _first_token_rate),
    ),
    "batch": (Measure("output tokens/s", lambda summary: summary.output_tokens_per_s),),
    "prefix": (Measure("runs/s", lambda summary: 1 / summary.duration_s),),
    "mix": (Measure("output tokens/s", lambda summary: summary.output_tokens_per_s),),
}
Runs = dict[str, dict[str, list[Summary]]]  # by workload, by server, a summary for each round


async def compare(arguments: argparse.Namespace) -> tuple[Runs, dict[str, str]]:
    """All runs, and why peers are missing."""
    model = catalog.locate(arguments.model)
    missing: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(private_cluster(_settings(arguments), console))
        servers = {OCTAVO: Target(url=own)}
        for name in arguments.peers.split(","):
            try:
                servers[name] = await _start(stack, name, (model, arguments.threads), own)
            except PeerUnavailable as reason:
                missing[name] = str(reason)
                console.print(f"without {name}: {reason}", style="yellow", markup=False)
        return await _rounds(servers, arguments, missing), missing


async def _start(stack: AsyncExitStack, name: str, settings: tuple[Path, int], tokenizer: str) -> Target:
    if name not in PEERS:
        raise PeerUnavailable(f"no such peer; known: {', '.join(PEERS)}")
    logs = peers_dir()
    logs.mkdir(parents=True, exist_ok=True)
    console.print(f"{name}: installing and starting")
    python = await asyncio.to_thread(install, PEERS[name], logs / f"{name}.install.log")
    model, threads = settings
    launch = Launch(python, model, claim_port("127.0.0.1", 0), threads)
    return await stack.enter_async_context(running(PEERS[name], launch, tokenizer, logs / f"{name}.log"))


async def _rounds(servers: dict[str, Target], arguments: argparse.Namespace, missing: dict[str, str]) -> Runs:
    runs: Runs = {workload: defaultdict(list) for workload in arguments.workloads.split(",")}
    for index in range(arguments.rounds):
        for workload, by_server in runs.items():
            names = list(servers)
            for name in names[index % len(names) :] + names[: index % len(names)]:
                try:
                    summary = await _run(servers[name], workload, index + 1, arguments)
                except (PeerUnavailable, BenchFailed) as reason:
                    if name == OCTAVO:
                        raise
                    console.print(f"without {name}: {workload}: {reason}", style="yellow", markup=False)
                    missing[name] = f"{workload}: {reason}"
                    _drop(name, servers, runs)
                    continue
                by_server[name].append(summary)
                console.print(
                    f"round {index + 1} {workload:7} {name:12} {summary.output_tokens_per_s:8.1f} output tokens/s"
                )
    return runs


def _drop(name: str, servers: dict[str, Target], runs: Runs) -> None:
    """A server that failed once has no figures at all: those of fewer rounds would be compared with those of more."""
    servers.pop(name)
    for by_server in runs.values():
        by_server.pop(name, None)


async def _run(target: Target, workload: str, seed: int, arguments: argparse.Namespace) -> Summary:
    """Raises ``PeerUnavailable`` for a server that fails or takes too long."""
    load = LoadOptions(workload=workload, num_requests=arguments.num_requests, seed=seed)
    try:
        async with asyncio.timeout(arguments.limit):
            (result,) = await measure(target, [load], Objectives(), 1, console)
    except TimeoutError:
        raise PeerUnavailable(f"a run took more than {arguments.limit:g} s") from None
    if result.summary.errors:
        raise PeerUnavailable(f"requests failed: {next(iter(result.summary.errors))}")
    return result.summary


def _settings(arguments: argparse.Namespace) -> ClusterSettings:
    return replace(
        plain_settings(arguments.model, arguments.threads), max_num_seqs=MAX_SEQS, max_model_len=CONTEXT_TOKENS
    )


def ratio(own: Sequence[Summary], other: Sequence[Summary], measure: Measure) -> float:
    """The median over the rounds of own figure over the other's."""
    pairs = zip(own, other, strict=True)
    return statistics.median(measure.value(mine) / (measure.value(theirs) or float("nan")) for mine, theirs in pairs)


def markdown(runs: Runs, missing: Mapping[str, str], num_rounds: int) -> str:
    """The table: a line for each workload, measure and server."""
    lines = [
        f"Medians of {num_rounds} rounds; a ratio is Octavo's figure over the server's, more is better for Octavo.",
        "",
        "| workload | measure | server | median | Octavo's ratio |",
        "|---|---|---|---:|---:|",
    ]
    for workload, by_server in runs.items():
        for measured in MEASURES[workload]:
            for name, summaries in by_server.items():
                median = statistics.median(map(measured.value, summaries))
                compared = "" if name == OCTAVO else f"{ratio(by_server[OCTAVO], summaries, measured):.2f}"
                lines.append(f"| {workload} | {measured.unit} | {name} | {median:.3g} | {compared} |")
    lines += ["", *(f"- {name}: {reason}" for name, reason in missing.items())]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--workloads", default=",".join(MEASURES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=900, help="seconds that one run may take")
    parser.add_argument("--num-requests", type=int, help="of each workload; default: its own")
    parser.add_argument("--model", default=catalog.DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=Path("peers"), help="FILE of FILE.json and FILE.md")
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads.split(",")) - set(MEASURES):
        parser.error(f"--workloads has {', '.join(sorted(unknown))}; known: {', '.join(MEASURES)}")
    runs, missing = asyncio.run(compare(arguments))
    table = markdown(runs, missing, arguments.rounds)
    told = {
        name: {server: [asdict(one) for one in all_of] for server, all_of in of.items()} for name, of in runs.items()
    }
    arguments.output.with_suffix(".json").write_text(json.dumps({"runs": told, "missing": missing}, indent=1) + "\n")
    arguments.output.with_suffix(".md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
