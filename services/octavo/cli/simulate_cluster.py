"""`octavo simulate-cluster`: a recorded trace on thousands of workers behind a router."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from octavo.cli import options
from octavo.cli.admin import AsJson
from octavo.cli.terminal import err, errors_shown, out
from octavo.cluster_simulation.cluster import ClusterShape
from octavo.cluster_simulation.outcome import Balance, ClusterOutcome, Percentiles
from octavo.cluster_simulation.plotting import draw
from octavo.cluster_simulation.servers import ServerName
from octavo.cluster_simulation.sweep import POLICY_NAMES, Sweep, policy_named
from octavo.cluster_simulation.trace import HASH_TOKENS, read_trace

CLUSTER, TRACE = "Cluster", "Trace"
MAX_WORKERS = 4096
ALL_POLICIES = ",".join(POLICY_NAMES)


def _sizes(text: str) -> str:
    for part in text.split(","):
        if not part.strip().isdecimal() or not 1 <= int(part) <= MAX_WORKERS:
            raise typer.BadParameter(f"{part.strip()!r} is no number of workers; write some from 1 to {MAX_WORKERS}")
    return text


def _policies(text: str) -> str:
    for part in text.split(","):
        if part.strip() not in POLICY_NAMES:
            raise typer.BadParameter(f"{part.strip()!r} is no policy; choose of {', '.join(POLICY_NAMES)}")
    return text


def _divides(block_size: int) -> int:
    if block_size < 1 or HASH_TOKENS % block_size:
        raise typer.BadParameter(f"{block_size} does not divide {HASH_TOKENS}, the tokens of one hash of a trace")
    return block_size


File = Annotated[
    Path,
    typer.Option(
        "--file",
        help="Mooncake JSON lines (.jsonl), or Azure's CSV of 2023.",
        show_default=False,
        rich_help_panel=TRACE,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1), help="Only so many requests of it.", show_default=False, rich_help_panel=TRACE
    ),
]
Scale = Annotated[
    int,
    typer.Option(
        callback=options.within(1, MAX_WORKERS),
        help="Copies of the trace at once, each with prefixes of its own: so many times its rate.",
        rich_help_panel=TRACE,
    ),
]
WorkersPerCopy = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="One copy for so many workers each, in place of --scale: a worker's load stays as the cluster grows.",
        show_default=False,
        rich_help_panel=TRACE,
    ),
]
Workers = Annotated[
    str, typer.Option(callback=_sizes, help="Cluster sizes, separated by commas.", rich_help_panel=CLUSTER)
]
Policies = Annotated[
    str,
    typer.Option("--policies", callback=_policies, help="Routing, separated by commas.", rich_help_panel=CLUSTER),
]
Server = Annotated[
    ServerName, typer.Option("--server", help="Model and GPUs of every worker.", rich_help_panel=CLUSTER)
]
SlotCount = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="KV slots of a worker. Default: what fits its GPUs.",
        show_default=False,
        rich_help_panel=CLUSTER,
    ),
]
BlockSize = Annotated[
    int,
    typer.Option(
        callback=_divides, help="Tokens per block; smaller ones are exacter and slower.", rich_help_panel=CLUSTER
    ),
]
MaxNumSeqs = Annotated[
    int,
    typer.Option(callback=options.within(1), help="Sequences in a worker's step, at most.", rich_help_panel=CLUSTER),
]
MaxNumBatchedTokens = Annotated[
    int, typer.Option(callback=options.within(1), help="Tokens in a worker's step, at most.", rich_help_panel=CLUSTER)
]
LoadWeight = Annotated[
    float,
    typer.Option(
        callback=options.within(0),
        help="What a token that a worker owes weighs against one that it has cached (prefix-aware).",
        rich_help_panel=CLUSTER,
    ),
]
Seed = Annotated[int, typer.Option(help="Of the drawn choices (two-choices).", rich_help_panel=CLUSTER)]
PlotFile = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw the sweep there (.png, .svg, .pdf).", show_default=False),
]


def simulate_cluster(  # noqa: PLR0913, PLR0917 - one per option
    file: File,
    workers: Workers = "16,64,256",
    policies: Policies = ALL_POLICIES,
    server: Server = ServerName.LLAMA2_70B,
    num_slots: SlotCount = None,
    block_size: BlockSize = HASH_TOKENS,
    max_num_seqs: MaxNumSeqs = 256,
    max_num_batched_tokens: MaxNumBatchedTokens = 8192,
    load_weight: LoadWeight = 1.0,
    scale: Scale = 1,
    workers_per_copy: WorkersPerCopy = None,
    limit: Limit = None,
    seed: Seed = 0,
    plot: PlotFile = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a recorded trace on a cluster of any size: hit rate, balance, latencies and the kvmanagers' load."""
    if scale != 1 and workers_per_copy is not None:
        raise typer.BadParameter("--scale and --workers-per-copy both say how many copies there are; give one of them")
    if max_num_batched_tokens < max_num_seqs:
        raise typer.BadParameter(
            f"--max-num-batched-tokens {max_num_batched_tokens} is less than --max-num-seqs {max_num_seqs}: "
            "every sequence needs a token"
        )
    sizes, chosen = (
        [int(size) for size in workers.split(",")],
        [policy_named(name.strip()) for name in policies.split(",")],
    )
    shape = ClusterShape(
        num_workers=sizes[0],
        policy=chosen[0],
        server=server,
        block_size=block_size,
        num_slots=num_slots,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        load_weight=load_weight,
        seed=seed,
    )
    with errors_shown():
        trace = read_trace(file, limit)
        outcomes = list(_watched(Sweep(shape, sizes, chosen, scale, workers_per_copy).run(trace)))
        if plot is not None:
            draw(outcomes, plot)
    if as_json:
        out.print_json(data=[asdict(outcome) for outcome in outcomes])
    else:
        out.print(_table(outcomes))


def _watched(outcomes: Iterator[ClusterOutcome]) -> Iterator[ClusterOutcome]:
    """Says what is there as it comes, for large sweeps take minutes."""
    for outcome in outcomes:
        err.print(f"{outcome.num_workers} workers, {outcome.policy.value}: done", style="dim")
        yield outcome


def _table(outcomes: Sequence[ClusterOutcome]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("workers", justify="right")
    table.add_column("routing")
    columns = (
        "requests",
        "cached",
        "TTFT s, p50/90/99",
        "latency s, p50/90/99",
        "busy",
        "busy: max/mean, cv",
        "queue",
        "queue: max/mean, cv",
        "KV held",
        "plans/s",
        "kvmanager cores",
        "journal MB/s",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for outcome in outcomes:
        table.add_row(*_cells(outcome))
    return table


def _cells(outcome: ClusterOutcome) -> tuple[str, ...]:
    kvmanager = outcome.kvmanager
    return (
        str(outcome.num_workers),
        outcome.policy.value,
        f"{outcome.num_requests:,}",
        f"{outcome.hit_rate:.1%}",
        _seconds(outcome.ttft_s),
        _seconds(outcome.latency_s),
        f"{outcome.busy_share:.0%}",
        _balance(outcome.busy_balance),
        f"{outcome.mean_queue:.3f}",
        _balance(outcome.queue_balance),
        f"{outcome.kv_use:.1%}",
        f"{kvmanager.plans_per_s:,.0f}",
        f"{kvmanager.core_share:.2f} + {kvmanager.service_share - kvmanager.core_share:.2f}",
        f"{kvmanager.journal_bytes_per_s / 1e6:.2f}",
    )


def _seconds(percentiles: Percentiles) -> str:
    return f"{percentiles.p50:.2f}/{percentiles.p90:.2f}/{percentiles.p99:.2f}"


def _balance(balance: Balance) -> str:
    return f"{balance.max_over_mean:.2f}, {balance.variation:.2f}"
