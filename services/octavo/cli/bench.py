"""`octavo bench`: measure a server."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.markup import escape

from octavo import catalog
from octavo.bench import report
from octavo.bench.loads import LoadOptions, Target
from octavo.bench.results import RunResult
from octavo.bench.summary import Objectives
from octavo.bench.workload import RECIPES
from octavo.cli import options
from octavo.cli.admin import AdminKey, Url
from octavo.cli.terminal import err, errors_shown, out
from octavo.data_folder import DataFolder
from octavo.errors import BenchFailed
from octavo.settings import ClusterSettings, Dtype, Kernels, PreemptionMode

app = typer.Typer(no_args_is_help=True, help="Measure a server: latencies, throughput, goodput.")
ALL_AT_ONCE = 4096  # requests open at once, at most

Workload = Annotated[
    str, typer.Option(help=f"What to send: {', '.join(RECIPES)}.", metavar="NAME", rich_help_panel="Load")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        help="Recorded requests instead: Azure 2023 or lengths as CSV, Mooncake as JSON lines.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
NumRequests = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="Requests to send. Default: the workload's number, or all of a trace.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        callback=options.within(1),
        help="Closed loop: this many at once, the next when one ends. Default: the workload's.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option(
        callback=options.within(0.001),
        help="Open loop: Poisson arrivals, this many a second, however long the answers take.",
        rich_help_panel="Load",
        show_default=False,
    ),
]
Rates = Annotated[
    str | None,
    typer.Option(
        help="A sweep: one run for each rate, as in 1,2,4.", rich_help_panel="Load", show_default=False, metavar="LIST"
    ),
]
Seed = Annotated[int, typer.Option(help="Of texts, lengths and arrivals.", rich_help_panel="Load")]
WarmUp = Annotated[
    int,
    typer.Option("--warm-up", callback=options.within(0), help="Requests before that do not count."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.", show_default=False)]
PlotFile = Annotated[
    Path | None, typer.Option("--plot", help="Draw the runs into this file (.png, .svg, .pdf).", show_default=False)
]
SloTtft = Annotated[
    float | None,
    typer.Option(callback=options.within(0), help="Objective: milliseconds to the first token.", show_default=False),
]
SloTpot = Annotated[
    float | None,
    typer.Option(callback=options.within(0), help="Objective: milliseconds per output token.", show_default=False),
]
ModelName = Annotated[
    str | None,
    typer.Option(help="Name of the model in requests. Default: the first that it lists.", show_default=False),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        help="For servers without /tokenize: a server of the same model that has it, or a Hugging Face folder.",
        show_default=False,
    ),
]


@app.command()
def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    data_dir: options.DataDir,
    url: Url = None,
    api_key: options.ApiKey = None,
    admin_key: AdminKey = None,
    served_model_name: ModelName = None,
    tokenizer: Tokenizer = None,
    workload: Workload = "mix",
    trace: Trace = None,
    num_requests: NumRequests = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    rates: Rates = None,
    seed: Seed = 0,
    warm_up: WarmUp = 1,
    slo_ttft: SloTtft = None,
    slo_tpot: SloTpot = None,
    json_file: JsonFile = None,
    plot_file: PlotFile = None,
) -> None:
    """Send requests to any server with an OpenAI-compatible API and show what the answers took."""
    with errors_shown():
        loads = [
            LoadOptions(
                workload=workload,
                trace=trace,
                num_requests=num_requests,
                max_concurrency=concurrency,
                rate=one_rate,
                seed=seed,
            )
            for one_rate in _rates(rate, rates)
        ]
        target = Target(
            url=url or DataFolder(data_dir).read_state().base_url,
            api_key=api_key,
            admin_key=admin_key or (None if url else DataFolder(data_dir).read_admin_key()),
            model=served_model_name,
            tokenizer=tokenizer,
        )
        objectives = Objectives(_seconds(slo_ttft), _seconds(slo_tpot))
        _show(asyncio.run(_session().measure(target, loads, objectives, warm_up, err)), json_file, plot_file)


@app.command()
def throughput(  # noqa: PLR0913 - one parameter per flag
    *,
    workload: Workload = "mix",
    trace: Trace = None,
    num_requests: NumRequests = None,
    seed: Seed = 0,
    warm_up: WarmUp = 1,
    model: options.Model = catalog.DEFAULT_MODEL,
    dtype: options.DtypeOption = Dtype.AUTO,
    kernels: options.KernelsOption = Kernels.AUTO,
    threads: options.Threads = None,
    kv_memory: options.KvMemory = "1GiB",
    max_num_batched_tokens: options.MaxNumBatchedTokens = 512,
    max_num_seqs: options.MaxNumSeqs = 64,
    json_file: JsonFile = None,
    plot_file: PlotFile = None,
) -> None:
    """Send all requests at once to a fresh cluster on this machine: how many tokens a second come of it."""
    with errors_shown():
        load = LoadOptions(
            workload=workload, trace=trace, num_requests=num_requests, max_concurrency=ALL_AT_ONCE, seed=seed
        )
        settings = _cluster(model, dtype, kernels, threads, kv_memory, (max_num_batched_tokens, max_num_seqs))
        _show(asyncio.run(_session().measure_private(settings, [load], warm_up, err)), json_file, plot_file)


@app.command()
def latency(  # noqa: PLR0913 - one parameter per flag
    *,
    batch_size: Annotated[
        int, typer.Option(callback=options.within(1, ALL_AT_ONCE), help="Requests that are sent together.")
    ] = 8,
    repeats: Annotated[int, typer.Option(callback=options.within(1), help="Batches, one after the other.")] = 5,
    model: options.Model = catalog.DEFAULT_MODEL,
    dtype: options.DtypeOption = Dtype.AUTO,
    kernels: options.KernelsOption = Kernels.AUTO,
    threads: options.Threads = None,
    kv_memory: options.KvMemory = "1GiB",
    max_num_batched_tokens: options.MaxNumBatchedTokens = 512,
    json_file: JsonFile = None,
) -> None:
    """Send a batch of 128 tokens in, 128 out, again and again to a fresh cluster; show medians over the batches."""
    with errors_shown():
        loads = [LoadOptions(workload="batch", num_requests=batch_size, seed=seed) for seed in range(repeats)]
        settings = _cluster(
            model, dtype, kernels, threads, kv_memory, (max(max_num_batched_tokens, batch_size), batch_size)
        )
        results = asyncio.run(_session().measure_private(settings, loads, 1, err))
        out.print(report.medians_table(results))
        _write(results, json_file)


def _session() -> ModuleType:
    """The part that needs the extra."""
    try:
        from octavo.bench import session  # noqa: PLC0415 - of an optional extra
    except ModuleNotFoundError as fault:
        raise BenchFailed(f"octavo bench needs the package {fault.name}: pip install 'octavo[bench]'") from fault
    return session


def _rates(rate: float | None, rates: str | None) -> list[float | None]:
    if rates is None:
        return [rate]
    if rate is not None:
        raise BenchFailed("--rate and --rates are given, but only one of them may be")
    try:
        chosen = [float(word) for word in rates.split(",")]
    except ValueError:
        chosen = []
    if not chosen or min(chosen) <= 0:
        raise BenchFailed(f"--rates is {rates!r}, but must be numbers above 0 with commas between them")
    return [*chosen]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _cluster(
    model: str, dtype: Dtype, kernels: Kernels, threads: int | None, kv_memory: str, sizes: tuple[int, int]
) -> ClusterSettings:
    return ClusterSettings(
        host="127.0.0.1",
        port=0,
        data_dir=Path(),
        model=model,
        served_model_name=None,
        redis=None,
        block_size=16,
        num_device_blocks=None,
        num_host_blocks=None,
        kv_memory=kv_memory,
        max_num_batched_tokens=sizes[0],
        max_num_seqs=sizes[1],
        preemption_mode=PreemptionMode.AUTO,
        max_model_len=None,
        max_waiting=ALL_AT_ONCE,
        threads=threads,
        dtype=dtype,
        kernels=kernels,
        drain_timeout_s=0.0,
    )


def _show(results: Sequence[RunResult], json_file: Path | None, plot_file: Path | None) -> None:
    for result in results:
        out.print(f"\n[bold]{escape(result.model)}[/] at {result.url}, prompts as {result.prompts}")
        out.print(report.latency_table(result))
        for remark in report.remarks(result):
            out.print(f"[yellow]{escape(remark)}[/]", soft_wrap=True)
    out.print()
    out.print(report.throughput_table(results))
    _write(results, json_file)
    if plot_file is not None:
        _plot(results, plot_file)


def _plot(results: Sequence[RunResult], path: Path) -> None:
    try:
        from octavo.bench import plot  # noqa: PLC0415 - of an optional extra
    except ModuleNotFoundError as fault:
        raise BenchFailed(f"--plot needs the package {fault.name}: pip install 'octavo[bench]'") from fault
    plot.plot(results, path)


def _write(results: Sequence[RunResult], path: Path | None) -> None:
    if path is None:
        return
    try:
        path.write_text(json.dumps({"runs": [report.as_json(result) for result in results]}, indent=1) + "\n")
    except OSError as fault:
        raise BenchFailed(f"--json {path}: {fault.strerror or fault}") from fault
