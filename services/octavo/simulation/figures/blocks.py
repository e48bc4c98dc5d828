"""Figures 18b and 19: the block size, and swapping against recomputation (paper §7.2, §7.3)."""

from typing import NamedTuple

from octavo.simulation.cost import CostModel, StepShape
from octavo.simulation.experiments import Effort, Load
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server, paged_cost
from octavo.simulation.outcome import Outcome
from octavo.simulation.paper import SERIES_OF, Curve, Point, curves
from octavo.simulation.report import Panel, Report, Row, Series
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Workload
from scheduler.core.preemption import PreemptionMode

_BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_DEFAULT_BLOCK_SIZE = 16
_NUM_SWAPPED_TOKENS = 256  # of the microbenchmark: its time at one block of 256 is that of one transfer
_HOST_POOL_SHARE = 1.0  # host memory, as a share of the device's KV memory
_BLOCK_SIZE, _LATENCY = "block size (tokens)", "normalized latency (s/token)"


class _Task(NamedTuple):
    load: Load
    rate: float


def block_sizes(effort: Effort) -> Report:
    """Figure 18b: OPT-13B at a fixed rate.

    The paper does not say which. Taken is the one at which its own curve of Fig. 12 has the latency that Fig. 18b has
    with blocks of 16.
    """
    panels: list[Panel] = []
    rows: list[Row] = []
    for dataset, letter, name in ((Dataset.SHAREGPT, "a", "ShareGPT"), (Dataset.ALPACA, "d", "Alpaca")):
        paper = curves("fig18b")[name]
        rate = _rate(paper, letter)
        tasks = [_task(dataset, size, rate, effort, PreemptionMode.AUTO) for size in _BLOCK_SIZES]
        ours = _latencies(effort.map(_at, tasks))
        panels.append(
            Panel(f"{name}, {rate:.2f} req/s", _BLOCK_SIZE, _LATENCY, (Series(name, ours, paper.points),), None, True)
        )
        rows += _rows(name, ours, paper, "s/token")
    return Report("18b", "block sizes", tuple(panels), tuple(rows))


def swap_or_recompute(effort: Effort) -> Report:
    """Figure 19: the cost of both for one sequence, and of a whole trace of ShareGPT under memory pressure."""
    micro = _micro()
    rows = micro_rows()
    end_to_end = []
    rate = _rate(curves("fig19b")["Recompute"], "a")
    for name, mode in (("Recompute", PreemptionMode.RECOMPUTE), ("Swap", PreemptionMode.SWAP)):
        tasks = [_task(Dataset.SHAREGPT, size, rate, effort, mode) for size in _BLOCK_SIZES]
        paper = curves("fig19b")[name]
        end_to_end.append(Series(name, _latencies(effort.map(_at, tasks)), paper.points))
        rows += _rows(f"{name} end to end", end_to_end[-1].ours, paper, "s/token")
    panels = (
        Panel("(a) 256 tokens", _BLOCK_SIZE, "time (ms)", tuple(micro), has_log_axes=True),
        Panel(f"(b) ShareGPT, {rate:.2f} req/s", _BLOCK_SIZE, _LATENCY, tuple(end_to_end), has_log_axes=True),
    )
    return Report("19", "swapping against recomputation", panels, tuple(rows))


def micro_rows() -> list[Row]:
    """Figure 19a: what swapping and recomputing 256 tokens take."""
    return [row for series in _micro() for row in _rows(series.name, series.ours, Curve(series.paper), "ms")]


def _micro() -> list[Series]:
    return [
        Series(name, tuple((float(size), 1e3 * _seconds(name, size)) for size in _BLOCK_SIZES), curve.points)
        for name, curve in curves("fig19a").items()
    ]


def _rate(curve: Curve, letter: str) -> float:
    """Where the paper's curve of Fig. 12 has the latency that ``curve`` has with blocks of the default size."""
    latency = dict(curve.points)[_DEFAULT_BLOCK_SIZE]
    return curves(f"fig12{letter}")[SERIES_OF[SpaceName.PAGED]].knee(latency)


def _task(dataset: Dataset, block_size: int, rate: float, effort: Effort, mode: PreemptionMode) -> _Task:
    pool = Pool(Server.OPT_13B, block_size)
    pool = Pool(Server.OPT_13B, block_size, num_host_blocks=int(_HOST_POOL_SHARE * pool.num_blocks))
    settings = Settings(SpaceName.PAGED, pool, preemption_mode=mode)
    return _Task(Load(settings, Workload(dataset, effort.duration_s(dataset, Server.OPT_13B))), rate)


def _at(task: _Task) -> Outcome:
    return task.load.at(task.rate)


def _latencies(outcomes: list[Outcome]) -> tuple[Point, ...]:
    return tuple(
        (float(size), outcome.normalized_latency_s) for size, outcome in zip(_BLOCK_SIZES, outcomes, strict=True)
    )


def _rows(name: str, ours: tuple[Point, ...], paper: Curve, unit: str) -> list[Row]:
    theirs = dict(paper.points)
    return [Row(f"{name} {size:.0f}", value, theirs[size], unit) for size, value in ours]


def _seconds(name: str, block_size: int) -> float:
    """What the microbenchmark measures, for 256 tokens of OPT-13B."""
    cost = paged_cost(Server.OPT_13B, block_size)
    if name == "Recompute":
        return _recompute_s(cost)
    one_way_s = cost.swap_block_s * -(-_NUM_SWAPPED_TOKENS // block_size)
    return one_way_s * (2 if name == "Swap in + out" else 1)


def _recompute_s(cost: CostModel) -> float:
    pairs = _NUM_SWAPPED_TOKENS**2 // 2
    return cost.step_s(StepShape(_NUM_SWAPPED_TOKENS, 1, 1, 0, num_attended_pairs=pairs))
