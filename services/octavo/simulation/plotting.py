"""Draws a reproduced figure: ours as lines with markers, the paper's dashed."""

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import PlottingUnavailable
from octavo.simulation.report import Panel, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 3
_SIZE = (4.6, 3.4)  # inches of one panel
_BAR = 0.4  # width of a bar


def draw(report: Report, folder: Path) -> list[Path]:
    """Writes the figure as PNG and SVG.

    Raises:
        PlottingUnavailable: matplotlib is not installed.

    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise PlottingUnavailable("plots need matplotlib: pip install 'octavo[bench]', or ask for --json") from missing
    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415 - after the backend is chosen

    panels = report.panels
    num_columns = min(_COLUMNS, len(panels))
    num_rows = -(-len(panels) // num_columns)
    size = (_SIZE[0] * num_columns, _SIZE[1] * num_rows)
    canvas, grid = pyplot.subplots(num_rows, num_columns, figsize=size, squeeze=False, layout="constrained")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw_panel(axes, panel)
    canvas.suptitle(f"Figure {report.figure}: {report.title} (dashed or hatched: the paper's)", fontsize=10)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"figure{report.figure}.{suffix}" for suffix in ("png", "svg")]
    for path in paths:
        canvas.savefig(path, dpi=120)
    pyplot.close(canvas)
    return paths


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    if panel.categories:
        _draw_bars(axes, panel)
    else:
        _draw_lines(axes, panel)
    if panel.has_log_axes:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    elif panel.y_limit is not None:
        axes.set_ylim(0, panel.y_limit)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xlabel(panel.x_label, fontsize=8)
    axes.set_ylabel(panel.y_label, fontsize=8)
    axes.legend(fontsize=7)


def _draw_lines(axes: "Axes", panel: Panel) -> None:
    for index, series in enumerate(panel.series):
        colour = f"C{index}"
        axes.plot(*zip(*series.ours, strict=True), color=colour, marker="o", markersize=3, label=series.name)
        axes.plot(*zip(*series.paper, strict=True), color=colour, linestyle="--", linewidth=1, alpha=0.7)


def _draw_bars(axes: "Axes", panel: Panel) -> None:
    (series,) = panel.series
    for offset, name, points, hatch in (
        (-_BAR / 2, "ours", series.ours, ""),
        (_BAR / 2, "paper", series.paper, "//"),
    ):
        places = [index + offset for index, _ in points]
        axes.bar(places, [height for _, height in points], _BAR, label=name, hatch=hatch)
    axes.set_xticks(range(len(panel.categories)), panel.categories, fontsize=7)
