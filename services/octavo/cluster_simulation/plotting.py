"""Draws a sweep: what becomes of hit rate, latency, balance and kvmanager load as a cluster grows."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.cluster_simulation.outcome import ClusterOutcome
from octavo.errors import PlottingUnavailable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (13.0, 7.0)  # inches
_PANELS: Sequence[tuple[str, Callable[[ClusterOutcome], float], bool]] = (
    ("prompt tokens cached (share)", lambda outcome: outcome.hit_rate, False),
    ("TTFT p50 (s)", lambda outcome: outcome.ttft_s.p50, True),
    ("TTFT p99 (s)", lambda outcome: outcome.ttft_s.p99, True),
    ("queue: max / mean", lambda outcome: outcome.queue_balance.max_over_mean, True),
    ("KV blocks held (share)", lambda outcome: outcome.kv_use, False),
    ("kvmanager and Redis (cores)", lambda outcome: outcome.kvmanager.service_share, True),
)


def draw(outcomes: Sequence[ClusterOutcome], path: Path) -> None:
    """Writes ``path``, whose ending gives the format (.png, .svg, .pdf).

    Raises:
        PlottingUnavailable: matplotlib is not installed, or the file cannot be written.

    """
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise PlottingUnavailable("plots need matplotlib: pip install 'octavo[bench]', or ask for --json") from missing
    figure = Figure(figsize=_SIZE, layout="constrained")
    for axes, (label, measure, is_log) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
        _draw_panel(axes, outcomes, measure)
        axes.set_xscale("log", base=2)
        if is_log:
            axes.set_yscale("log")
        axes.set_xlabel("workers", fontsize=8)
        axes.set_title(label, fontsize=9)
        axes.legend(fontsize=7)
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as fault:
        raise PlottingUnavailable(f"--plot {path}: {fault}") from fault


def _draw_panel(axes: "Axes", outcomes: Iterable[ClusterOutcome], measure: Callable[[ClusterOutcome], float]) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for outcome in outcomes:
        lines.setdefault(outcome.policy.value, []).append((outcome.num_workers, measure(outcome)))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=name)
