"""`octavo simulate-cluster` as people call it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.main import app

TRACES = Path(__file__).parents[3] / "data" / "traces"
MOONCAKE, AZURE = str(TRACES / "mooncake_conversation.jsonl"), str(TRACES / "azure_conversation.csv")


def octavo(*words):
    return CliRunner().invoke(app, ["simulate-cluster", *words], env={"COLUMNS": "400"})


def test_a_sweep_is_a_row_for_each_size_and_policy():
    answer = octavo("--file", MOONCAKE, "--limit", "40", "--workers", "2,4", "--policies", "round-robin,prefix-aware")
    assert answer.exit_code == 0
    rows = [line.split()[:3] for line in answer.stdout.splitlines()[1:]]
    assert rows == [
        ["2", "round-robin", "40"],
        ["2", "prefix-aware", "40"],
        ["4", "round-robin", "40"],
        ["4", "prefix-aware", "40"],
    ]


def test_json_has_every_figure_and_the_plot_is_drawn(tmp_path):
    plot = tmp_path / "sweep.svg"
    words = ("--file", AZURE, "--workers", "1,2", "--scale", "2", "--server", "llama3.1-8b", "--plot", str(plot))
    answer = octavo(*words, "--json")
    assert answer.exit_code == 0
    outcomes = json.loads(answer.stdout)
    assert len(outcomes) == 8
    assert {outcome["num_requests"] for outcome in outcomes} == {48}
    assert {outcome["hit_rate"] for outcome in outcomes} == {0.0}
    assert outcomes[0]["ttft_s"]["p50"] > 0
    assert outcomes[0]["kvmanager"]["plans_per_s"] > 0
    assert "kvmanager and Redis" in plot.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "4,0"), "'0' is no number of workers; write some from 1 to 4096"),
        (("--workers", "many"), "'many' is no number of workers"),
        (("--policies", "random"), "'random' is no policy; choose of round-robin, least-loaded, two-choices"),
        (("--block-size", "100"), "100 does not divide 512"),
        (("--scale", "2", "--workers-per-copy", "4"), "give one of them"),
        (("--max-num-seqs", "64", "--max-num-batched-tokens", "63"), "63 is less than --max-num-seqs 64"),
    ],
)
def test_a_bad_option_is_refused_with_what_is_allowed(words, message):
    answer = octavo("--file", MOONCAKE, *words)
    assert answer.exit_code == 2
    assert message in " ".join(answer.stderr.replace("│", " ").split())


def test_a_bad_trace_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 0}\n')
    answer = octavo("--file", str(path))
    assert answer.exit_code == 1
    assert "line 1: input_length is missing" in answer.stderr
