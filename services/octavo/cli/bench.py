"""`octavo bench`: measure a server."""

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
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
from octavo.cli import bench_options as given
from octavo.cli import options
from octavo.cli.admin import Url
from octavo.cli.bench_paper import paper
from octavo.cli.terminal import err, errors_shown, out
from octavo.data_folder import DataFolder
from octavo.errors import BenchFailed
from octavo.settings import Dtype, Kernels

app = typer.Typer(no_args_is_help=True, help="Measure a server: latencies, throughput, goodput.")
app.command()(paper)
ALL_AT_ONCE = 4096  # requests open at once, at most


@app.command()
def serve(  # noqa: PLR0913 - one parameter per flag
    *,
    data_dir: options.DataDir,
    url: Url = None,
    api_key: options.ApiKey = None,
    served_model_name: given.ModelName = None,
    tokenizer: given.Tokenizer = None,
    workload: given.Workload = "mix",
    trace: given.Trace = None,
    num_requests: given.NumRequests = None,
    concurrency: given.Concurrency = None,
    rate: given.Rate = None,
    rates: given.Rates = None,
    seed: given.Seed = 0,
    warm_up: given.WarmUp = 1,
    slo_ttft: given.SloTtft = None,
    slo_tpot: given.SloTpot = None,
    json_file: given.JsonFile = None,
    plot_file: given.PlotFile = None,
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
                seed=seed + index,  # or the prefix cache would have the prompts of the run before
            )
            for index, one_rate in enumerate(_rates(rate, rates))
        ]
        target = Target(
            url=url or DataFolder(data_dir).read_state().base_url,
            api_key=api_key,
            model=served_model_name,
            tokenizer=tokenizer,
        )
        objectives = Objectives(_seconds(slo_ttft), _seconds(slo_tpot))
        _show(asyncio.run(_session().measure(target, loads, objectives, warm_up, err)), json_file, plot_file)


@app.command()
def throughput(  # noqa: PLR0913 - one parameter per flag
    *,
    workload: given.Workload = "mix",
    trace: given.Trace = None,
    num_requests: given.NumRequests = None,
    seed: given.Seed = 0,
    warm_up: given.WarmUp = 1,
    model: options.Model = catalog.DEFAULT_MODEL,
    dtype: options.DtypeOption = Dtype.AUTO,
    kernels: options.KernelsOption = Kernels.AUTO,
    threads: options.Threads = None,
    kv_memory: options.KvMemory = "1GiB",
    max_num_batched_tokens: options.MaxNumBatchedTokens = 512,
    max_num_seqs: options.MaxNumSeqs = 64,
    json_file: given.JsonFile = None,
    plot_file: given.PlotFile = None,
) -> None:
    """Send all requests at once to a fresh cluster on this machine: how many tokens a second come of it."""
    with errors_shown():
        load = LoadOptions(
            workload=workload, trace=trace, num_requests=num_requests, max_concurrency=ALL_AT_ONCE, seed=seed
        )
        session = _session()
        settings = replace(
            session.plain_settings(model, threads),
            dtype=dtype,
            kernels=kernels,
            kv_memory=kv_memory,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
        )
        _show(asyncio.run(session.measure_private(settings, [load], warm_up, err)), json_file, plot_file)


@app.command()
def latency(  # noqa: PLR0913 - one parameter per flag
    *,
    batch_size: Annotated[
        int, typer.Option(callback=options.within(1, ALL_AT_ONCE), help="Requests that are sent together.")
    ] = 8,
    prompt_tokens: Annotated[int, typer.Option(callback=options.within(1), help="Tokens of each prompt.")] = 128,
    output_tokens: Annotated[int, typer.Option(callback=options.within(1), help="Tokens of each output.")] = 128,
    repeats: Annotated[int, typer.Option(callback=options.within(1), help="Batches, one after the other.")] = 5,
    model: options.Model = catalog.DEFAULT_MODEL,
    dtype: options.DtypeOption = Dtype.AUTO,
    kernels: options.KernelsOption = Kernels.AUTO,
    threads: options.Threads = None,
    kv_memory: options.KvMemory = "1GiB",
    max_num_batched_tokens: options.MaxNumBatchedTokens = 512,
    json_file: given.JsonFile = None,
) -> None:
    """Send a batch of equal requests again and again to a fresh cluster; show medians over the batches."""
    with errors_shown():
        lengths = (prompt_tokens, output_tokens)
        loads = [LoadOptions(lengths=lengths, num_requests=batch_size, seed=seed) for seed in range(repeats)]
        session = _session()
        settings = replace(
            session.plain_settings(model, threads),
            dtype=dtype,
            kernels=kernels,
            kv_memory=kv_memory,
            max_num_batched_tokens=max(max_num_batched_tokens, batch_size),
            max_num_seqs=batch_size,
        )
        results = asyncio.run(session.measure_private(settings, loads, 1, err))
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
    if not chosen or not all(0 < one < math.inf for one in chosen):
        raise BenchFailed(f"--rates is {rates!r}, but must be numbers above 0 with commas between them")
    return [*chosen]


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


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
