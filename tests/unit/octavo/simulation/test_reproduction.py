"""The paper's evaluation on short traces: near enough to see that memory and scheduler do what the paper says."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from octavo.main import app
from octavo.simulation.experiments import Effort, LatencyCurve, Load, for_paper_duration
from octavo.simulation.figures import FIGURES, blocks, latency, memory
from octavo.simulation.lengths import Dataset
from octavo.simulation.machines import Server
from octavo.simulation.paper import SERIES_OF, Curve, curves, printed
from octavo.simulation.settings import Settings
from octavo.simulation.spaces import ORCA, Pool, SpaceName
from octavo.simulation.workload import Workload


def load(space: SpaceName, dataset: Dataset, server: Server, duration_s: float) -> Load:
    return Load(Settings(space, Pool(server)), Workload(dataset, duration_s))


# ---- what the paper says


def test_every_curve_of_figure_12_has_a_knee():
    knees = {letter: {s: curves(f"fig12{letter}")[SERIES_OF[s]].knee() for s in SpaceName} for letter in "abcdef"}
    assert knees["a"][SpaceName.PAGED] == pytest.approx(1.93, abs=0.01)
    for panel in knees.values():
        assert panel[SpaceName.MAX] < panel[SpaceName.POW2] < panel[SpaceName.ORACLE] < panel[SpaceName.PAGED]


def test_the_knee_lies_on_the_line_between_two_points():
    assert Curve(((1.0, 0.1), (2.0, 0.9))).knee() == pytest.approx(1.5)
    assert Curve(((1.0, 0.1), (2.0, 0.2))).knee() == 2.0, "a curve that stays below ends with its last point"


# ---- ours


@pytest.mark.parametrize("space", ORCA)
def test_waste_is_within_two_points_of_figure_2(space):
    waste = load(space, Dataset.SHAREGPT, Server.OPT_13B, 600.0).during(2.0).waste
    paper = printed()["fig2_kv_cache_usage_percent"][SERIES_OF[space]]
    ours = (waste.filled, waste.reserved, waste.internal, waste.external)
    assert [100.0 * part for part in ours] == [pytest.approx(value, abs=2.5) for value in paper.values()]


def test_paging_fills_nearly_all_memory_once_it_is_saturated():
    pool = Pool(Server.OPT_13B, num_slots=4096)
    outcome = Load(Settings(SpaceName.PAGED, pool), Workload(Dataset.SHAREGPT, 200.0)).during(2.0)
    waste = outcome.waste
    assert outcome.filled_while_waiting > 0.87
    assert waste.reserved < 0.03, "only the rest of each last block"
    assert waste.internal == 0.0


@pytest.mark.parametrize("space", ORCA)
def test_as_many_requests_run_at_once_as_figure_13_says(space):
    batched = load(space, Dataset.SHAREGPT, Server.OPT_13B, 400.0).during(2.0).num_batched
    paper = printed()["fig13_batched_requests"]["OPT-13B ShareGPT 2 req/s"][SERIES_OF[space]]
    assert batched == pytest.approx(paper, rel=0.06)


@pytest.mark.parametrize(
    ("letter", "dataset", "server", "duration_s"),
    [
        ("b", Dataset.SHAREGPT, Server.OPT_66B, 1500.0),
        ("d", Dataset.ALPACA, Server.OPT_13B, 120.0),
        ("e", Dataset.ALPACA, Server.OPT_66B, 120.0),
    ],
)
@pytest.mark.parametrize("space", [SpaceName.MAX, SpaceName.ORACLE])
def test_the_latency_bound_is_crossed_near_the_papers_rate(letter, dataset, server, duration_s, space):
    """A short trace bears some overload, so the upper rate is further off than the lower one."""
    knee = curves(f"fig12{letter}")[SERIES_OF[space]].knee()
    server_load = load(space, dataset, server, duration_s)
    assert server_load.at(0.8 * knee, give_up=True).normalized_latency_s < 0.5
    assert server_load.at(1.4 * knee, give_up=True).normalized_latency_s > 0.5


def test_saved_memory_is_near_figure_15_for_two_outputs():
    settings = Settings(SpaceName.PAGED, Pool(Server.OPT_13B), looks_at_sharing=True)
    outcome = Load(settings, Workload(Dataset.ALPACA, 60.0, num_sequences=2)).during(8.0)
    paper = printed()["fig15_memory_saving_percent_OPT13B_Alpaca"]["parallel_sampling"]["2"]
    assert 100.0 * outcome.shared_share == pytest.approx(paper, abs=1.5)


# ---- every figure


@pytest.mark.parametrize("figure", ["12", "14", "16", "17"])
def test_every_curve_of_a_figure_is_searched_for_its_knee(figure, monkeypatch):
    searched: list[Load] = []

    def search(load: Load) -> LatencyCurve:
        searched.append(load)
        return LatencyCurve(2.0 * load.guess, ((load.guess, 0.1),))

    monkeypatch.setattr(latency, "latency_curve", search)
    report = FIGURES[figure](Effort(quick=True))
    assert [row.ratio for row in report.rows] == [pytest.approx(2.0)] * len(searched)
    assert sum(len(panel) for panel in report.values["knees"].values()) == len(searched)
    assert all(series.ours and series.paper for panel in report.panels for series in panel.series)


def test_the_knees_of_figure_12_are_told_by_panel_and_space(monkeypatch):
    monkeypatch.setattr(latency, "latency_curve", lambda load: LatencyCurve(load.guess, ()))
    knees = FIGURES["12"](Effort()).as_json()["knees"]
    assert list(knees) == list("abcdef")
    assert all(set(panel) == {"max", "pow2", "oracle", "paged", "ft"} for panel in knees.values())


@pytest.mark.parametrize(("figure", "num_rows"), [("15", 6), ("18b", 18), ("19", 54)])
def test_a_figure_has_a_row_for_each_of_its_points(figure, num_rows, monkeypatch):
    monkeypatch.setattr(Effort, "duration_s", lambda *_: 3.0)
    report = FIGURES[figure](Effort(quick=True))
    assert len(report.rows) == num_rows
    assert all(row.ours > 0.0 for row in report.rows)


def test_a_swap_costs_what_figure_19_says():
    report = blocks.micro_rows()
    assert [row.ratio for row in report if row.name.endswith(" 256")] == [pytest.approx(1.0, abs=0.25)] * 4


def test_a_short_trace_tells_the_knee_of_a_long_one():
    short = Load(Settings(SpaceName.PAGED, Pool(Server.OPT_13B)), Workload(Dataset.ALPACA, 180.0), 1.0, 0.01, 3600.0)
    assert for_paper_duration(10.0, replace(short, paper_duration_s=180.0)) == pytest.approx(10.0)
    assert 9.0 < for_paper_duration(10.0, short) < 9.6


# ---- the commands


def test_a_figure_is_printed_as_json(monkeypatch):
    monkeypatch.setattr(Effort, "duration_s", lambda *_: 20.0)
    answer = CliRunner().invoke(app, ["reproduce", "--figure", "2", "--quick", "--json"])
    assert answer.exit_code == 0, answer.output
    told = json.loads(answer.stdout)
    assert told["figure"] == "2"
    assert set(told["waste"]) == {"max", "pow2", "oracle", "paged"}
    assert {"name", "ours", "paper", "ratio", "unit"} == set(told["rows"][0])


def test_a_figure_is_drawn_beside_the_papers(tmp_path, monkeypatch):
    monkeypatch.setattr(Effort, "duration_s", lambda *_: 20.0)
    answer = CliRunner().invoke(app, ["reproduce", "--figure", "13", "--quick", "--out", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert {path.name for path in tmp_path.iterdir()} == {"figure13.png", "figure13.svg"}
    assert "ours / paper" in answer.stdout


def test_a_figure_that_is_not_run_again_is_refused_with_those_that_are():
    answer = CliRunner().invoke(app, ["reproduce", "--figure", "18"])
    assert answer.exit_code == 2
    assert all(number in answer.output for number in FIGURES)


def test_a_simulated_server_is_told_in_numbers():
    answer = CliRunner().invoke(app, ["simulate", "--rate", "4", "--workload", "alpaca", "--duration", "5", "--json"])
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["num_requests"] > 5


def test_every_space_of_figure_2_adds_up(monkeypatch):
    monkeypatch.setattr(Effort, "duration_s", lambda *_: 20.0)
    report = memory.waste(Effort(quick=True))
    for shares in report.values["waste"].values():
        assert sum(shares.values()) == pytest.approx(1.0)
