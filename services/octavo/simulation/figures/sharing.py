"""Figures 14 and 15: several sequences of one prompt, sampled or searched for by beams (paper §6.3)."""

from typing import NamedTuple

from octavo.simulation.experiments import Effort, Load
from octavo.simulation.figures.latency import Comparison, compare
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.outcome import Outcome
from octavo.simulation.paper import SERIES_OF, curves, printed
from octavo.simulation.report import Panel, Report, Row, Series
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Workload

_WIDTHS = (2, 4, 6)
_LOAD = 0.7  # of the paper's knee: memory is shared alike at any load that a server can follow


def several_sequences(effort: Effort) -> Report:
    """Figure 14: latency with 2, 4 and 6 outputs or beams, OPT-13B on Alpaca."""
    kinds = [(beams, width) for beams in (False, True) for width in _WIDTHS]
    comparisons = [
        Comparison(
            f"fig14{letter}",
            f"({letter}) {width} {'beams' if beams else 'outputs'}",
            Server.OPT_13B,
            _workload(width, effort, beams=beams),
        )
        for letter, (beams, width) in zip("abcdef", kinds, strict=True)
    ]
    return compare("14", "several outputs, and beam search", comparisons, effort)


class _Task(NamedTuple):
    load: Load
    rate: float


def memory_saved(effort: Effort) -> Report:
    """Figure 15: blocks that sharing saves, of those that would be needed without."""
    names = {False: "parallel_sampling", True: "beam_search"}
    kinds = [(beams, width) for beams in names for width in _WIDTHS]
    outcomes = effort.map(_during, [_saving_task(beams, width, effort) for beams, width in kinds])
    paper = printed()["fig15_memory_saving_percent_OPT13B_Alpaca"]
    ours = {kind: 100.0 * outcome.shared_share for kind, outcome in zip(kinds, outcomes, strict=True)}
    rows = [
        Row(f"{names[beams]} {width}", ours[beams, width], paper[names[beams]][str(width)], "%")
        for beams, width in kinds
    ]
    panels = [
        Panel(
            names[beams],
            "sequences",
            "memory saved (%)",
            (
                Series(
                    "vLLM",
                    tuple((float(width), ours[beams, width]) for width in _WIDTHS),
                    tuple((float(width), paper[names[beams]][str(width)]) for width in _WIDTHS),
                ),
            ),
        )
        for beams in names
    ]
    saved = {name: {str(width): ours[beams, width] for width in _WIDTHS} for beams, name in names.items()}
    return Report("15", "memory that sharing saves", tuple(panels), tuple(rows), {"saved_percent": saved})


def _workload(width: int, effort: Effort, *, beams: bool) -> Workload:
    duration_s = effort.duration_s(Dataset.ALPACA, Server.OPT_13B)
    return Workload(Dataset.ALPACA, duration_s, num_sequences=width, is_beam_search=beams)


def _saving_task(beams: bool, width: int, effort: Effort) -> _Task:
    letter = "abcdef"[len(_WIDTHS) * beams + _WIDTHS.index(width)]
    rate = _LOAD * curves(f"fig14{letter}")[SERIES_OF[SpaceName.PAGED]].knee()
    settings = Settings(SpaceName.PAGED, Pool(Server.OPT_13B), looks_at_sharing=True)
    return _Task(Load(settings, _workload(width, effort, beams=beams)), rate)


def _during(task: _Task) -> Outcome:
    return task.load.during(task.rate)
