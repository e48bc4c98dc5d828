"""Pictures of runs: how latencies are distributed, and what a growing rate does to them."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from octavo.bench.records import RequestRecord
from octavo.bench.results import RunResult
from octavo.errors import BenchFailed

Measure = Callable[[RequestRecord], float | None]
CDFS: tuple[tuple[str, Measure], ...] = (
    ("time to first token", lambda record: record.ttft_s),
    ("time per output token", lambda record: record.tpot_s),
    ("end to end", lambda record: record.e2e_s),
)


def plot(results: Sequence[RunResult], path: Path) -> None:
    """Writes ``path``, whose ending gives the format (.png, .svg, .pdf). Raises ``BenchFailed``."""
    rated = [result for result in results if result.rate is not None]
    is_sweep = len(rated) > 1
    figure = Figure(figsize=(12, 8 if is_sweep else 4), layout="constrained")
    axes = figure.subplots(2 if is_sweep else 1, len(CDFS), squeeze=False)
    for axis, (label, measure) in zip(axes[0], CDFS, strict=True):
        _cdf(axis, label, results, measure)
    if is_sweep:
        _sweep(axes[1], rated)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as fault:
        raise BenchFailed(f"--plot {path}: {fault}") from fault


def _cdf(axis: Axes, label: str, results: Iterable[RunResult], measure: Measure) -> None:
    longest_s = 0.0
    for result in results:
        values = [value for record in result.records if (value := _of_done(record, measure)) is not None]
        if values:
            axis.ecdf(values, label=_name(result))
            longest_s = max(longest_s, *values)
    axis.set(xlabel=f"{label} (s)", ylabel="share of requests", xlim=(0, 1.05 * longest_s or None))
    axis.grid(visible=True, alpha=0.3)
    if axis.lines:
        axis.legend(fontsize="small")


def _of_done(record: RequestRecord, measure: Measure) -> float | None:
    return None if record.error else measure(record)


def _sweep(axes: Sequence[Axes], results: Sequence[RunResult]) -> None:
    done = sorted((result for result in results if result.summary.normalized), key=lambda result: result.rate or 0)
    rates = [result.rate or 0.0 for result in done]
    latency, tokens, good = axes
    for name in ("p50", "p99"):
        latency.plot(rates, [getattr(result.summary.normalized, name) for result in done], marker="o", label=name)
    latency.set(ylabel="normalized latency (s/token)")
    latency.legend(fontsize="small")
    tokens.plot(rates, [result.summary.output_tokens_per_s for result in done], marker="o")
    tokens.set(ylabel="output tokens/s")
    good.plot(rates, [result.summary.good_share for result in done], marker="o")
    good.set(ylabel="share within the objectives", ylim=(0, 1.05))
    for axis in axes:
        axis.set(xlabel="requests/s", xlim=(0, None))
        axis.grid(visible=True, alpha=0.3)


def _name(result: RunResult) -> str:
    return result.workload if result.rate is None else f"{result.workload}, {result.rate:g}/s"
