"""Runs that several figures need, and how much time they may take."""

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import mean
from typing import TypeVar

from octavo.simulation.knee import LATENCY_BOUND_S, find_knee
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.outcome import Outcome
from octavo.simulation.paper import Point
from octavo.simulation.settings import Settings
from octavo.simulation.simulator import Simulation
from octavo.simulation.workload import Workload, trace

_PAPER_S, _PAPER_175B_S = 3600.0, 900.0  # lengths of the paper's traces
_QUICK_S = {Dataset.SHAREGPT: 900.0, Dataset.CHATBOT: 900.0, Dataset.ALPACA: 180.0, Dataset.TRANSLATION: 120.0}
_CURVE_SHARES = (0.4, 0.7, 0.85, 0.95)  # of the knee, where a curve is sampled besides

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Effort:
    """How exactly a figure is run again."""

    quick: bool = False
    jobs: int = 1

    @property
    def tolerance(self) -> float:
        """Of a knee, as a share of it."""
        return 0.03 if self.quick else 0.01

    def duration_s(self, dataset: Dataset, server: Server) -> float:
        """Of a trace."""
        whole_s = paper_duration_s(server)
        return min(whole_s, _QUICK_S[dataset]) if self.quick else whole_s

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> list[Result]:
        """``function`` of each task, on as many processes as were asked for."""
        if self.jobs == 1:
            return [function(task) for task in tasks]
        with ProcessPoolExecutor(self.jobs) as pool:
            return list(pool.map(function, tasks))


def paper_duration_s(server: Server) -> float:
    """How long the paper's traces for a server are: an hour, but for the largest model (§6.1)."""
    return _PAPER_175B_S if server is Server.OPT_175B else _PAPER_S


@dataclass(frozen=True, slots=True)
class Load:
    """A server under a kind of load, at any rate. The search for its knee begins at ``guess``."""

    settings: Settings
    workload: Workload
    guess: float = 1.0
    tolerance: float = 0.01
    paper_duration_s: float | None = None  # of the trace that the knee is told for; None: of this one

    def at(self, rate: float, *, give_up: bool = False) -> Outcome:
        """The whole trace at one rate; with ``give_up`` not further than to know that it is beyond the bound."""
        simulation = Simulation(self.settings, trace(self.workload, rate))
        return simulation.run(give_up_at_s=LATENCY_BOUND_S if give_up else None)

    def during(self, rate: float) -> Outcome:
        """The averages over the time of the trace, without what is left to do after the last arrival."""
        return Simulation(self.settings, trace(self.workload, rate)).run(stop_at_s=self.workload.duration_s)


@dataclass(frozen=True, slots=True)
class LatencyCurve:
    """Normalized latency over the request rate, up to the knee."""

    knee: float
    points: tuple[Point, ...]


def latency_curve(load: Load) -> LatencyCurve:
    """Finds the knee of a load and samples the curve below it."""
    seen: dict[float, Outcome] = {}

    def run(rate: float) -> Outcome:
        seen[rate] = load.at(rate, give_up=True)
        return seen[rate]

    knee = find_knee(run, load.guess, load.tolerance)
    for share in _CURVE_SHARES:
        run(share * knee)
    knee = for_paper_duration(knee, load)
    points = [(rate, outcome.normalized_latency_s) for rate, outcome in seen.items() if not outcome.is_saturated]
    return LatencyCurve(knee, tuple(sorted(point for point in [*points, (knee, LATENCY_BOUND_S)] if point[0] <= knee)))


def for_paper_duration(knee: float, load: Load) -> float:
    """The knee that the paper's longer trace would have.

    At a rate above the server's capacity the wait grows with time; its mean over a trace is (rate / capacity - 1) times
    half the trace. So a short trace crosses the bound at a higher rate, capacity · (1 + 2 · wait / duration).
    """
    if load.paper_duration_s is None:
        return knee
    outputs = [arrival.num_output_tokens for arrival in trace(load.workload, knee)]
    wait_s = LATENCY_BOUND_S / mean(1.0 / num_tokens for num_tokens in outputs)
    return knee * (1.0 + 2.0 * wait_s / load.paper_duration_s) / (1.0 + 2.0 * wait_s / load.workload.duration_s)
