"""What `octavo bench` refuses before it measures anything, and what it says of figures."""

import subprocess
import sys

import pytest
from rich.console import Console
from typer.testing import CliRunner

from octavo.bench.plot import plot
from octavo.bench.records import RequestRecord
from octavo.bench.report import latency_table, remarks, throughput_table
from octavo.bench.results import Gauges, RunResult
from octavo.bench.summary import Objectives, summarize
from octavo.errors import BenchFailed
from octavo.main import app

URL = ("--url", "http://127.0.0.1:9")


def bench(*words: str):
    return CliRunner().invoke(app, ["bench", *words], env={"COLUMNS": "250", "NO_COLOR": "1", "TERM": "dumb"})


def result(rate: float | None = None, **changes) -> RunResult:
    """Of three requests: one slow, one that ended early, and one that failed."""
    records = (
        RequestRecord(0.0, 2.0, (0.5, 1.0, 2.0), 10, 3, 3, num_cached_tokens=4),
        RequestRecord(0.0, 1.0, (0.25, 1.0), 10, 2, 9, num_cached_tokens=0),
        RequestRecord(0.5, 0.6, (), 10, 0, 3, error="HTTP 503: the queue is full"),
    )
    fields = {
        "url": "http://127.0.0.1:9",
        "model": "tiny",
        "workload": "mix",
        "seed": 0,
        "rate": rate,
        "max_concurrency": 8,
        "num_skipped": 0,
        "prompts": "token ids",
        "summary": summarize(records, Objectives(ttft_s=0.3)),
        "gauges": Gauges(0.25, 0.5),
        "records": records,
    }
    return RunResult(**(fields | changes))


def printed(table, label_width: int) -> dict[str, list[str]]:
    """The rows of a table by their labels."""
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return {line[:label_width].strip(): line[label_width:].split() for line in capture.get().splitlines()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rates", "1,x"), "--rates is '1,x', but must be numbers above 0"),
        (("--rates", "1,-2"), "--rates is '1,-2', but must be numbers above 0"),
        (("--rates", "nan"), "--rates is 'nan', but must be numbers above 0"),
        (("--rates", "1,2", "--rate", "3"), "--rate and --rates are given"),
        (("--trace", "/no/such.csv"), "127.0.0.1:9 does not answer"),
        (("--concurrency", "0"), "0 is too small; the least is 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(words, message):
    done = bench("serve", *URL, *words)
    assert done.exit_code != 0
    assert message in done.output


def test_without_the_extra_a_user_is_told_what_to_install():
    program = f"import sys; sys.modules['aiohttp'] = None; from octavo.main import app; app(['bench', 'serve', *{URL}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "octavo bench needs the package aiohttp: pip install 'octavo[bench]'" in done.stderr


def test_latencies_are_shown_in_milliseconds():
    assert printed(latency_table(result()), 22)["time to first token"] == ["375.00", "375.00", "475.00", "497.50"]


def test_throughput_goodput_and_memory_are_shown_beside_each_other():
    rows = printed(throughput_table([result(rate=2.0), result()]), 21)
    assert rows["arrivals, 1/s"] == ["2", "-"]
    assert rows["requests failed"] == ["1", "1"]
    assert rows["good requests/s"][:2] == ["0.50", "(33%)"]
    assert rows["prompt tokens cached"] == ["20.0%", "20.0%"]
    assert rows["KV memory used, most"] == ["50.0%", "50.0%"]


def test_what_a_reader_must_know_is_said():
    told = remarks(result(num_skipped=3, prompts="words"))
    assert told[0] == "1 requests failed: HTTP 503: the queue is full"
    assert [line.split(" ", 1)[0] for line in told[1:]] == ["3", "1", "no"]


def test_one_run_and_a_sweep_are_drawn(tmp_path):
    for name, results in (("one.svg", [result()]), ("sweep.svg", [result(rate=1.0), result(rate=2.0)])):
        plot(results, tmp_path / name)
        drawn = (tmp_path / name).read_text()
        assert drawn.count('id="axes_') == (3 if name == "one.svg" else 6)


def test_a_picture_of_an_unknown_format_is_refused(tmp_path):
    with pytest.raises(BenchFailed, match=r"--plot .*picture\.docx.*not supported"):
        plot([result()], tmp_path / "picture.docx")
