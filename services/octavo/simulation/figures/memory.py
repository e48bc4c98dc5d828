"""Figures 2 and 13: where the KV slots are, and how many requests run at once (paper §2, §6.2)."""

from typing import NamedTuple

from octavo.simulation.experiments import Effort, Load, paper_duration_s
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.outcome import Outcome, Waste
from octavo.simulation.paper import SERIES_OF, printed
from octavo.simulation.report import Panel, Report, Row, Series
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Workload

_SPACES = (SpaceName.MAX, SpaceName.POW2, SpaceName.ORACLE, SpaceName.PAGED)
_KINDS = {
    "filled": "token_states",
    "reserved": "reservation",
    "internal": "internal_frag",
    "external": "external_frag_and_others",
}


_FILLING = 2.0  # times as long as other traces, so that the time in which memory fills counts less


class _Saturated(NamedTuple):
    """A load that no space can follow, as the paper ran it for Fig. 13."""

    dataset: Dataset
    rate: float
    name: str


_SATURATED = (
    _Saturated(Dataset.SHAREGPT, 2.0, "OPT-13B ShareGPT 2 req/s"),
    _Saturated(Dataset.ALPACA, 30.0, "OPT-13B Alpaca 30 req/s"),
)


class _Task(NamedTuple):
    load: Load
    rate: float


def waste(effort: Effort) -> Report:
    """Figure 2: shares of the KV slots under a load that no space can follow."""
    outcomes = effort.map(_during, [_task(_SATURATED[0], space, effort) for space in _SPACES])
    paper = printed()["fig2_kv_cache_usage_percent"]
    rows, panels = [], []
    for space, outcome in zip(_SPACES, outcomes, strict=True):
        ours = {theirs: 100.0 * getattr(outcome.waste, kind) for kind, theirs in _KINDS.items()}
        printed_here = paper[SERIES_OF[space]]
        rows += [Row(f"{space.value} {kind}", ours[kind], value, "%") for kind, value in printed_here.items()]
        bars = Series(
            SERIES_OF[space],
            tuple(enumerate(ours.values())),
            tuple((index, printed_here[kind]) for index, kind in enumerate(ours) if kind in printed_here),
        )
        panels.append(Panel(SERIES_OF[space], "", "% of KV slots", (bars,), y_limit=100.0, categories=tuple(_KINDS)))
    saturated = 100.0 * outcomes[-1].filled_while_waiting
    rows.append(Row("paged token_states while requests wait", saturated, paper["vLLM"]["token_states"], "%"))
    usage = {space.value: _shares(outcome.waste) for space, outcome in zip(_SPACES, outcomes, strict=True)}
    return Report(
        "2",
        "where the KV slots are",
        tuple(panels),
        tuple(rows),
        {"waste": usage, "paged_filled_while_waiting": saturated / 100.0},
    )


def batched_requests(effort: Effort) -> Report:
    """Figure 13: requests that run at once, mean over the steps."""
    tasks = [_task(load, space, effort) for load in _SATURATED for space in _SPACES]
    outcomes = iter(effort.map(_during, tasks))
    rows, panels, values = [], [], {}
    for load in _SATURATED:
        paper = printed()["fig13_batched_requests"][load.name]
        ours = {space: next(outcomes).num_batched for space in _SPACES}
        rows += [Row(f"{load.dataset.value} {s.value}", ours[s], paper[SERIES_OF[s]], "requests") for s in _SPACES]
        bars = Series(
            load.name,
            tuple((float(index), ours[space]) for index, space in enumerate(_SPACES)),
            tuple((float(index), paper[SERIES_OF[space]]) for index, space in enumerate(_SPACES)),
        )
        categories = tuple(space.value for space in _SPACES)
        panels.append(Panel(load.name, "", "batched requests", (bars,), categories=categories))
        values[load.dataset.value] = {space.value: value for space, value in ours.items()}
    return Report("13", "requests that run at once", tuple(panels), tuple(rows), {"batched": values})


def _task(saturated: _Saturated, space: SpaceName, effort: Effort) -> _Task:
    whole_s = paper_duration_s(Server.OPT_13B)
    duration_s = min(whole_s, _FILLING * effort.duration_s(saturated.dataset, Server.OPT_13B))
    workload = Workload(saturated.dataset, duration_s)
    return _Task(Load(Settings(space, Pool(Server.OPT_13B)), workload), saturated.rate)


def _during(task: _Task) -> Outcome:
    return task.load.during(task.rate)


def _shares(waste: Waste) -> dict[str, float]:
    return {kind: getattr(waste, kind) for kind in _KINDS}
