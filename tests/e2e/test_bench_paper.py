"""`octavo bench paper`: paged memory beside a baseline, on the real model and in the real services."""

import json
import subprocess
import sys


def bench_paper(*words):
    command = [sys.executable, "-m", "octavo", "bench", "paper", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def test_paging_fills_what_it_allocates_and_runs_more_requests_than_orca_in_the_same_memory():
    done = bench_paper("--quick", "--only", "spaces", "--threads", "2", "--json")
    assert done.returncode == 0, done.stderr
    comparisons = {told["key"]: told for told in json.loads(done.stdout)["comparisons"]}
    waste, batched = ({row["name"]: row["ours"] for row in comparisons[key]["rows"]} for key in ("waste", "batched"))
    assert waste["paged filled, of what is allocated"] >= 90
    assert waste["max filled"] + waste["max reserved"] + waste["max internal"] + waste["max external"] == 100
    assert waste["max filled"] < waste["paged filled"]
    assert batched["max"] == 1  # the pool holds one sequence of the longest kind
    assert batched["paged"] > 1.5 * batched["max"]


def test_an_unknown_comparison_is_refused_with_the_known_ones():
    refused = bench_paper("--only", "speed")
    assert refused.returncode == 2
    assert "swapping" in refused.stderr
