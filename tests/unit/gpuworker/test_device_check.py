"""The device check without a device: its refusal, its budget, its table and its page."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import device_check
import device_timing
import pytest
import torch
from device_equality import Equality
from device_report import Budget, Figure, Report, Stage, figures_table, page, to_json

ROOT = Path(__file__).parents[3]
DECODE = Figure("paged attention, decode", "1 x 1 of 128 tokens", 2e-6, num_bytes=4e6, torch_seconds=1.6e-6)
SWAP = Figure("swap-blocks out", "9 blocks", 1e-3, num_bytes=5e6, against_host=True)
PREFILL = Figure("paged attention, prefill", "1 x 512 of 512 tokens", 1e-3, flops=2e11, torch_seconds=1e-3)
REPORT = Report(
    "H200", "torch", "2026-11-29", "abc", 4e12, 1e10, (Stage("build", "built", 7.2),), (DECODE, SWAP, PREFILL)
)


def test_without_a_device_the_check_ends_at_once_with_one_sentence():
    if torch.cuda.is_available():
        pytest.skip("this machine has a device")
    command = [sys.executable, "benchmarks/device_check.py"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("make device-check needs a CUDA device: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_make_target_says_so_before_it_installs_anything():
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a device")
    done = subprocess.run(["make", "device-check"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert done.stderr.startswith("make device-check needs a CUDA device, but there is no NVIDIA driver here")


def test_a_budget_counts_down_and_never_below_nothing():
    now_s = 100.0
    budget = Budget(10.0, clock=lambda: now_s)
    now_s = 104.0
    assert budget.left_s == 6.0
    assert budget.allows(6.0)
    assert not budget.allows(6.5)
    now_s = 200.0
    assert budget.left_s == 0.0


def test_rates_are_told_beside_a_copy_of_the_same_kind_and_times_beside_torch():
    assert REPORT.share_of_copy(DECODE) == pytest.approx(0.5)
    assert REPORT.share_of_copy(SWAP) == pytest.approx(0.5)
    assert REPORT.share_of_copy(PREFILL) is None
    assert DECODE.cost == pytest.approx(0.25)
    assert SWAP.cost is None
    rows = figures_table(REPORT).splitlines()
    assert rows[2] == "| paged attention, decode | 1 x 1 of 128 tokens | 2.0 | 2000 |  | 50 % | +25 % |"
    assert rows[3] == "| swap-blocks out | 9 blocks | 1000.0 | 5 |  | 50 % |  |"
    assert rows[4] == "| paged attention, prefill | 1 x 512 of 512 tokens | 1000.0 |  | 200 |  | +0 % |"


def test_the_page_names_device_commit_and_stages_and_the_json_holds_all_of_it():
    text = page(REPORT)
    assert "H200; torch; commit abc, 2026-11-29." in text
    assert "| build | built | 7 |" in text
    assert "the paper's kernel cost 20 to 26 %" in text
    assert json.loads(to_json(REPORT))["figures"][1]["against_host"] is True
    assert not replace(REPORT, stages=(Stage("build", "failed", 1.0, passed=False),)).passed


def test_the_committed_page_is_what_the_check_wrote_or_says_that_nothing_is_measured():
    committed = (ROOT / "docs" / "device-figures.md").read_text()
    if committed != page(None):
        figures = json.loads((ROOT / "benchmarks" / "data" / "device-figures.json").read_text())
        assert figures["device"] in committed


def test_a_failed_build_ends_the_check_and_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(device_check, "LIBRARIES", tmp_path)
    monkeypatch.setattr(device_check.shutil, "which", lambda name, path=None: None)
    assert device_check.check(Budget(60), None, tmp_path / "page.md", tmp_path / "figures.json") == 1
    assert "nvcc is missing: install the CUDA toolkit" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_a_command_that_outlasts_the_budget_is_ended(monkeypatch):
    with pytest.raises(device_check.StageFailed, match=r"took longer than the 1 s that were left"):
        device_check._run(Budget(0.0), [sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_failing_command_shows_its_output(capfd):
    with pytest.raises(device_check.StageFailed, match="ended with status 3"):
        device_check._run(
            Budget(60.0), [sys.executable, "-c", "import sys; print('why'); sys.exit(3)"], dict(os.environ)
        )
    assert "why" in capfd.readouterr().err


def test_layers_are_so_many_that_kv_outgrows_the_caches():
    small, large = device_timing.AttentionCase(1, 1, 128), device_timing.AttentionCase(64, 1, 8192)
    assert small.num_layers == device_timing.MOST_LAYERS
    assert large.num_layers == 1
    middle = device_timing.AttentionCase(16, 1, 1024)
    assert middle.num_layers * middle.kv_bytes >= device_timing.LEAST_BYTES


def test_a_causal_prefill_counts_half_of_the_square():
    case = device_timing.AttentionCase(1, 4, 4)
    assert case.flops == 4 * device_timing.NUM_HEADS * device_timing.HEAD_SIZE * (1 + 2 + 3 + 4)


def test_steps_are_equal_only_where_log_probabilities_and_nearly_all_tokens_are():
    assert Equality(100, 100, 1e-5).holds
    assert Equality(100, 97, 1e-5).holds
    assert not Equality(100, 96, 1e-5).holds
    assert not Equality(100, 100, 0.1).holds
