"""Figures for people and for programs."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from octavo.bench.records import RequestRecord
from octavo.bench.results import RunResult
from octavo.bench.summary import Distribution

LATENCIES = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2e": "end to end",
    "normalized": "end to end, per token",
}


FIGURES: Mapping[str, Callable[[RunResult], str]] = {
    "arrivals, 1/s": lambda result: _number(result.rate, ".3g"),
    "at once, at most": lambda result: _number(result.max_concurrency, "d"),
    "requests done": lambda result: str(result.summary.num_completed),
    "requests failed": lambda result: str(sum(result.summary.errors.values())),
    "duration, s": lambda result: f"{result.summary.duration_s:.2f}",
    "requests/s": lambda result: f"{result.summary.requests_per_s:.2f}",
    "output tokens/s": lambda result: f"{result.summary.output_tokens_per_s:.1f}",
    "all tokens/s": lambda result: f"{result.summary.total_tokens_per_s:.1f}",
    "good requests/s": lambda result: f"{result.summary.good_requests_per_s:.2f} ({result.summary.good_share:.0%})",
    "prompt tokens cached": lambda result: _number(result.summary.prefix_hit_rate, ".1%"),
    "KV memory used, mean": lambda result: _number(result.gauges.mean_kv_use, ".1%"),
    "KV memory used, most": lambda result: _number(result.gauges.max_kv_use, ".1%"),
}


def throughput_table(results: Sequence[RunResult]) -> Table:
    """A column for each run."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for result in results:
        table.add_column(result.workload, justify="right")
    for label, figure in FIGURES.items():
        table.add_row(label, *map(figure, results))
    return table


def latency_table(result: RunResult) -> Table:
    """What the answers of one run took, in milliseconds."""
    table = Table(box=None, pad_edge=False)
    table.add_column("milliseconds")
    for column in ("mean", "p50", "p90", "p99"):
        table.add_column(column, justify="right")
    for name, label in LATENCIES.items():
        latency: Distribution | None = getattr(result.summary, name)
        if latency is not None:
            values = (latency.mean, latency.p50, latency.p90, latency.p99)
            table.add_row(label, *(f"{value * 1000:.2f}" for value in values))
    return table


def medians_table(results: Sequence[RunResult]) -> Table:
    """Medians over runs of the same batch: of its whole time, and of the medians of its requests."""
    table = Table(box=None, pad_edge=False)
    table.add_column(f"median of {len(results)} batches")
    table.add_column("", justify="right")
    summaries = [result.summary for result in results]
    table.add_row("batch, s", _median([summary.duration_s for summary in summaries], ".3f"))
    table.add_row("time to first token, ms", _median([_p50_ms(summary.ttft) for summary in summaries], ".2f"))
    table.add_row("time per output token, ms", _median([_p50_ms(summary.tpot) for summary in summaries], ".2f"))
    table.add_row("output tokens/s", _median([summary.output_tokens_per_s for summary in summaries], ".1f"))
    table.add_row("errors", str(sum(sum(summary.errors.values()) for summary in summaries)))
    return table


def _p50_ms(latency: Distribution | None) -> float | None:
    return None if latency is None else latency.p50 * 1000


def _median(values: Sequence[float | None], shape: str) -> str:
    known = [value for value in values if value is not None]
    return _number(statistics.median(known) if known else None, shape)


def remarks(result: RunResult) -> list[str]:
    """What a reader of the figures must know."""
    summary = result.summary
    told = [f"{count} requests failed: {error}" for error, count in summary.errors.items()]
    if result.num_skipped:
        told.append(f"{result.num_skipped} requests are longer than the server's sequences may be and were left out")
    if summary.num_ended_early:
        told.append(f"{summary.num_ended_early} outputs ended before the tokens that were asked for")
    if result.prompts == "words":
        told.append(
            "no tokenizer: prompts are counted in words unless the server counts tokens; name one (--tokenizer)"
        )
    return told


def as_json(result: RunResult) -> dict[str, Any]:
    """Everything, with the latencies of each request; times in seconds."""
    fields = asdict(result)
    fields["records"] = [_request(record) for record in result.records]
    return fields


def _request(record: RequestRecord) -> dict[str, Any]:
    return {
        "sent_s": record.sent_s,
        "ttft_s": record.ttft_s,
        "tpot_s": record.tpot_s,
        "e2e_s": record.e2e_s,
        "num_prompt_tokens": record.num_prompt_tokens,
        "num_output_tokens": record.num_output_tokens,
        "num_cached_tokens": record.num_cached_tokens,
        "error": record.error,
    }


def _number(value: float | None, shape: str) -> str:
    return "-" if value is None else format(value, shape)
