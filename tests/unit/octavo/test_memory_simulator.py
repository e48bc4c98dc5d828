"""The memory simulator: the published figures, the rules behind them, and the page that shows them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from octavo.errors import WorkloadInvalid
from octavo.main import app
from octavo.memory_simulator.page import page
from octavo.memory_simulator.simulation import FREE, Filling, simulate
from octavo.memory_simulator.workload import Lengths, Workload, read_workload
from scheduler.api import simulator

WORKLOAD = read_workload()


def octavo(*words: str):
    return CliRunner().invoke(app, ["memory-simulator", *words], env={"COLUMNS": "200"})


def test_long_stretches_take_67_steps_and_fill_41_percent():
    run = simulate(WORKLOAD, WORKLOAD.max_len)
    assert (run.num_steps, round(run.utilization, 4)) == (67, 0.4107)
    assert (run.most_running, run.num_pauses) == (4, 0)


def test_pages_take_40_steps_and_fill_88_percent_with_one_pause():
    run = simulate(WORKLOAD, WORKLOAD.page)
    assert (run.num_steps, round(run.utilization, 4), run.most_running) == (40, 0.8832, 10)
    assert [(step, frame.paused) for step, frame in enumerate(run.frames, 1) if frame.paused] == [(12, (9,))]
    assert [step for step, frame in enumerate(run.frames, 1) if 9 in frame.admitted] == [1, 15]


@pytest.mark.parametrize("piece", [1, 2, 4, 8, 16, 32, 64])
def test_no_slot_is_lost_or_given_twice_and_every_token_is_made(piece):
    run = simulate(WORKLOAD, piece)
    assert sorted(number for frame in run.frames for number in frame.finished) == list(range(10))
    for frame in run.frames:
        tokens = dict.fromkeys(frame.running, 0)
        for owner, filling in zip(frame.owners, frame.fillings, strict=True):
            assert (owner == FREE) == (filling is Filling.NOTHING)
            if filling in (Filling.PROMPT, Filling.ANSWER):
                tokens[owner] += 1
        assert frame.num_filled == sum(tokens.values())
        for number in frame.running:
            slots = frame.owners.count(number)
            assert slots % piece == 0
            assert slots - piece < tokens[number] <= slots
        for number in frame.finished:
            assert tokens[number] == WORKLOAD.requests[number].total


def test_one_page_per_slot_wastes_nothing():
    assert simulate(WORKLOAD, 1).utilization == 1.0


def test_the_head_of_the_queue_is_not_overtaken():
    workload = Workload(16, 16, 4, (Lengths(4, 4), Lengths(12, 4), Lengths(1, 1)))
    first, *_ = simulate(workload, 4).frames
    assert (first.running, first.waiting) == ((0,), (1, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"page": 7}, "page is 7, but must be from 1 to 256 and divide slots"),
        ({"max_len": 512}, "max_len is 512"),
        ({"requests_prompt_answer": [[1, 0]]}, "request 0 has 1 prompt and 0 answer tokens"),
        ({"requests_prompt_answer": [[1, 1], [60, 5]]}, "request 1 has 60 prompt and 5 answer tokens"),
        ({"requests_prompt_answer": [[1]]}, "must hold slots"),
        ({"slots": None}, "must hold slots"),
    ],
)
def test_a_workload_that_cannot_be_served_is_refused(tmp_path, changes, message):
    path = tmp_path / "workload.json"
    base = {"slots": 256, "max_len": 64, "page": 8, "requests_prompt_answer": []}
    path.write_text(json.dumps(base | changes))
    with pytest.raises(WorkloadInvalid, match=re.escape(message)):
        read_workload(path)
    refused = octavo("--workload", str(path))
    assert (refused.exit_code, message in refused.stderr.replace("\n", " ")) == (1, True)


def test_the_command_tells_both_in_a_table_and_as_json(tmp_path):
    shown = octavo().stdout
    assert re.search(r"stretches of 64 +67 +41% +4 +0", shown)
    assert re.search(r"pages of 8 +40 +88% +10 +1", shown)
    told = json.loads(octavo("--json").stdout)
    assert [(run["name"], run["steps"], len(run["frames"])) for run in told["runs"]] == [
        ("contiguous", 67, 67),
        ("paged", 40, 40),
    ]


def test_the_scheduler_serves_the_page_that_the_command_makes(tmp_path):
    made = tmp_path / "page.html"
    assert octavo("--html", str(made)).exit_code == 0
    assert made.read_text() == page(WORKLOAD) == Path(simulator.PAGE).read_text()
    outside = octavo("--html", str(tmp_path / "missing" / "page.html"))
    assert (outside.exit_code, "No such file" in outside.stderr) == (1, True)


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_draws_the_step_that_its_address_names():
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{simulator.PAGE}#12"]
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "step 12 of 67" in dom
    assert "paused, its pages freed: 9" in dom
    paged = dom.split("Pages of 8 slots")[1]
    frame = simulate(WORKLOAD, WORKLOAD.page).frames[11]
    for filling in (Filling.PROMPT, Filling.ANSWER, Filling.RESERVED):
        drawn = len(re.findall(rf'class="slot(?: starts)? {filling}"', paged.split("legend")[0]))
        assert drawn == frame.fillings.count(filling)
