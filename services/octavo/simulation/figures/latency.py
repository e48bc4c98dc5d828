"""Figures 12, 16 and 17: normalized latency over the request rate (paper §6.2, §6.4, §6.5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.simulation.experiments import Effort, LatencyCurve, Load, latency_curve, paper_duration_s
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.paper import SERIES_OF, curves
from octavo.simulation.report import Panel, Report, Row, Series
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import Pool, SpaceName
from octavo.simulation.workload import Workload

RATE, LATENCY = "request rate (req/s)", "normalized latency (s/token)"
Y_LIMIT = 1.0
ALL_SPACES = tuple(SpaceName)
ORCAS_AND_PAGED = tuple(space for space in SpaceName if space is not SpaceName.FT)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One panel: the same load on several spaces."""

    figure: str  # as the paper's data name it
    title: str
    server: Server
    workload: Workload
    spaces: Sequence[SpaceName] = ORCAS_AND_PAGED
    caches_prefixes: bool = False

    def load(self, space: SpaceName, effort: Effort) -> Load:
        """What is searched for the knee of one curve; the search begins at the paper's."""
        settings = Settings(space, Pool(self.server), caches_prefixes=self.caches_prefixes and space is SpaceName.PAGED)
        guess = curves(self.figure)[SERIES_OF[space]].knee()
        return Load(settings, self.workload, guess, effort.tolerance, paper_duration_s(self.server))


def basic_sampling(effort: Effort) -> Report:
    """Figure 12: three sizes of OPT on ShareGPT and Alpaca."""
    servers = (Server.OPT_13B, Server.OPT_66B, Server.OPT_175B)
    panels = [(dataset, server) for dataset in (Dataset.SHAREGPT, Dataset.ALPACA) for server in servers]
    comparisons = [
        Comparison(
            f"fig12{letter}",
            f"({letter}) {server.value}, {dataset.value}",
            server,
            Workload(dataset, effort.duration_s(dataset, server)),
            ALL_SPACES,
        )
        for letter, (dataset, server) in zip("abcdef", panels, strict=True)
    ]
    return compare("12", "one output per request", comparisons, effort)


def shared_prefix(effort: Effort) -> Report:
    """Figure 16: translation behind a prefix of one or five examples."""
    comparisons = [
        Comparison(
            f"fig16{letter}",
            f"({letter}) {num_shots}-shot prefix, {num_tokens} tokens",
            Server.OPT_13B,  # LLaMA-13B in the paper: the same layers, width and KV
            Workload(
                Dataset.TRANSLATION,
                effort.duration_s(Dataset.TRANSLATION, Server.OPT_13B),
                num_shared_tokens=num_tokens,
            ),
            (SpaceName.ORACLE, SpaceName.PAGED),
            caches_prefixes=True,
        )
        for letter, num_shots, num_tokens in (("a", 1, 80), ("b", 5, 341))
    ]
    return compare("16", "a shared prefix", comparisons, effort)


def chatbot(effort: Effort) -> Report:
    """Figure 17: chats whose history fills half of the context."""
    workload = Workload(Dataset.CHATBOT, effort.duration_s(Dataset.CHATBOT, Server.OPT_13B))
    return compare("17", "chatbot", [Comparison("fig17", "opt-13b", Server.OPT_13B, workload)], effort)


def compare(figure: str, title: str, comparisons: Sequence[Comparison], effort: Effort) -> Report:
    """Searches every curve of every panel for its knee."""
    keys = [(comparison, space) for comparison in comparisons for space in comparison.spaces]
    found = effort.map(latency_curve, [comparison.load(space, effort) for comparison, space in keys])
    by_figure: dict[str, dict[SpaceName, LatencyCurve]] = {comparison.figure: {} for comparison in comparisons}
    for (comparison, space), curve in zip(keys, found, strict=True):
        by_figure[comparison.figure][space] = curve
    letters = {comparison.figure: comparison.figure.removeprefix(f"fig{figure}") for comparison in comparisons}
    return Report(
        figure,
        title,
        tuple(_panel(comparison, by_figure[comparison.figure]) for comparison in comparisons),
        tuple(
            Row(f"{letters[name]} {space.value}".strip(), curve.knee, curves(name)[SERIES_OF[space]].knee(), "req/s")
            for name, found_here in by_figure.items()
            for space, curve in found_here.items()
        ),
        {"knees": _knees(letters, by_figure)},
    )


def _knees(
    letters: Mapping[str, str], by_figure: Mapping[str, Mapping[SpaceName, LatencyCurve]]
) -> dict[str, dict[str, float]]:
    """By panel and space, in requests a second."""
    return {
        letters[name] or name: {space.value: curve.knee for space, curve in here.items()}
        for name, here in by_figure.items()
    }


def _panel(comparison: Comparison, found: Mapping[SpaceName, LatencyCurve]) -> Panel:
    paper = curves(comparison.figure)
    series = [Series(SERIES_OF[space], curve.points, paper[SERIES_OF[space]].points) for space, curve in found.items()]
    return Panel(comparison.title, RATE, LATENCY, tuple(series), Y_LIMIT)
