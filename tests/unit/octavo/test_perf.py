"""Where the time of steps went, from pages of metrics."""

import itertools
import json
from http.server import BaseHTTPRequestHandler

import pytest
from typer.testing import CliRunner

from octavo.main import app
from octavo.step_times import parse_metrics, step_times

PAGE = """# HELP octavo_step_seconds Time that the worker computed a step
# TYPE octavo_step_seconds histogram
octavo_step_seconds_bucket{{le="0.002"}} 0.0
octavo_step_seconds_count {steps}
octavo_step_seconds_sum {compute}
octavo_step_gap_seconds_sum {gap}
octavo_step_phase_seconds_total{{phase="attention"}} {attention}
octavo_step_phase_seconds_total{{phase="logits"}} 1.5e-05
octavo_step_exchange_seconds_sum 0.25
octavo_grant_seconds_sum {grant}
octavo_journal_seconds_sum 0.5
python_gc_objects_collected_total{{generation="0"}} 7.0
"""


def page(steps=10.0, compute=1.0, gap=0.1, attention=0.4, grant=0.2):
    return PAGE.format(steps=steps, compute=compute, gap=gap, attention=attention, grant=grant)


def test_times_are_means_over_the_steps_between_two_looks():
    before = parse_metrics(page())
    times = step_times(before, parse_metrics(page(steps=30.0, compute=1.5, gap=0.12, attention=0.8, grant=0.5)))
    assert times is not None
    assert times.num_steps == 20
    assert times.compute_s == pytest.approx(0.025)
    assert times.gap_s == pytest.approx(0.001)
    assert times.phases_s == {"attention": pytest.approx(0.02), "logits": 0.0}
    assert times.grant_s == pytest.approx(0.015)
    assert times.journal_s == 0.0


def test_without_a_step_there_is_nothing_to_tell():
    samples = parse_metrics(page())
    assert step_times(samples, samples) is None


@pytest.fixture
def scheduler(serve):
    pages = itertools.chain([page()], itertools.repeat(page(steps=12.0, compute=1.08, gap=0.14)))

    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(next(pages).encode())

        def log_message(self, *words):
            pass

    return serve(Metrics)


def perf(*words: str):
    return CliRunner().invoke(app, ["perf", *words], env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})


def test_perf_shows_a_step_in_milliseconds_and_shares(scheduler):
    shown = perf("--url", scheduler, "--interval", "0.1").output
    assert "mean of 2 steps within 0.1 s" in shown
    rows = {line[:32].strip(): line[32:].split() for line in shown.splitlines()[1:]}
    assert rows["computing"] == ["40.000", "66.7%"]
    assert rows["gap before it"] == ["20.000", "33.3%"]


def test_perf_says_when_no_step_was_computed(scheduler):
    shown = perf("--url", scheduler, "--interval", "0.1", "--count", "2").output
    assert "no step within 0.1 s" in shown


def test_perf_prints_json_for_programs(scheduler):
    told = json.loads(perf("--url", scheduler, "--interval", "0.1", "--json").output)
    assert told["num_steps"] == 2
    assert told["compute_s"] == pytest.approx(0.04)


def test_a_server_without_metrics_is_named():
    done = perf("--url", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert "127.0.0.1:9" in done.output
