"""`octavo bench` against a real cluster, with tiny sizes."""

import json
import subprocess
import sys

import httpx


def bench(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "octavo", "bench", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_serve_measures_a_cluster_and_writes_figures_and_a_picture(cluster, tmp_path):
    figures, picture = tmp_path / "figures.json", tmp_path / "picture.svg"
    words = ("--workload", "prefix", "--num-requests", "3", "--concurrency", "1", "--warm-up", "0")
    done = bench("serve", *words, "--data-dir", str(cluster.data_dir), "--json", str(figures), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert "time to first token" in done.stdout
    (run,) = json.loads(figures.read_text())["runs"]
    assert run["prompts"] == "token ids"
    summary = run["summary"]
    assert summary["errors"] == {}
    assert summary["num_prompt_tokens"] == 3 * 544
    assert summary["num_output_tokens"] == 3 * 32  # no end of sequence cut one short
    assert summary["prefix_hit_rate"] == 2 * 512 / (3 * 544)  # the second and the third find what the first left
    assert 0 < run["gauges"]["max_kv_use"] < 1
    assert [record["num_cached_tokens"] for record in run["records"]] == [0, 512, 512]
    assert picture.read_text().rstrip().endswith("</svg>")


def test_serve_sweeps_rates_and_counts_what_misses_an_objective(cluster, tmp_path):
    figures = tmp_path / "figures.json"
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("num_prefill_tokens,num_decode_tokens\n8,2\n9,3\n4000,9\n")
    words = ("--trace", str(lengths), "--rates", "40,80", "--slo-ttft", "0.001", "--json", str(figures))
    done = bench("serve", "--url", cluster.base_url, *words)
    assert done.returncode == 0, done.stderr
    assert "1 requests are longer than the server's sequences may be" in done.stdout
    runs = json.loads(figures.read_text())["runs"]
    assert [run["rate"] for run in runs] == [40.0, 80.0]
    assert [run["seed"] for run in runs] == [0, 1]  # no run finds the prompts of another in the prefix cache
    for run in runs:
        assert run["num_skipped"] == 1
        assert run["summary"]["num_completed"] == 2
        assert run["summary"]["good_share"] == 0  # nobody answers within a microsecond


def test_latency_starts_a_cluster_of_its_own_and_shows_medians(tmp_path):
    figures = tmp_path / "figures.json"
    lengths = ("--batch-size", "3", "--prompt-tokens", "20", "--output-tokens", "5", "--repeats", "2")
    done = bench("latency", *lengths, "--kv-memory", "64MiB", "--threads", "2", "--json", str(figures))
    assert done.returncode == 0, done.stderr
    assert "median of 2 batches" in done.stdout
    runs = json.loads(figures.read_text())["runs"]
    assert [run["summary"]["num_prompt_tokens"] for run in runs] == [60, 60]
    assert [run["summary"]["num_output_tokens"] for run in runs] == [15, 15]
    assert {run["summary"]["prefix_hit_rate"] for run in runs} == {0.0}


def test_the_cluster_in_one_process_gives_the_tokens_of_the_services_apart(cluster, start_cluster):
    """Prefix hits and all: it is the same engine."""
    together = start_cluster(in_process=True)
    request = {"prompt": "Shall I compare thee", "max_tokens": 24, "temperature": 0.8, "seed": 7, "logprobs": 1}
    answers = [httpx.post(f"{one.base_url}/v1/completions", json=request, timeout=60) for one in (cluster, together)]
    apart, alone = (answer.raise_for_status().json()["choices"] for answer in answers)
    assert alone == apart
    assert {service["name"] for service in together.services()} == {"redis", "octavo"}
    assert together.octavo("audit").returncode == 0
    times = json.loads(together.octavo("perf", "--interval", "0.1", "--json").stdout)
    assert times is None  # no step since the last request


def test_perf_tells_what_the_steps_of_a_running_cluster_are_made_of(cluster):
    request = {
        "prompt": "Shall I compare thee",
        "max_tokens": 400,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream("POST", f"{cluster.base_url}/v1/completions", json=request, timeout=60) as answer:
        lines = answer.iter_lines()  # the end of an iterator ends its request
        next(lines)
        times = json.loads(cluster.octavo("perf", "--interval", "0.5", "--json").stdout)
    assert times["num_steps"] > 0
    assert {"qkv", "attention", "gate_up", "logits"} <= set(times["phases_s"])
    assert 0 < sum(times["phases_s"].values()) <= 1.01 * times["compute_s"]
    assert 0 < times["journal_s"] < times["grant_s"]


def test_a_server_that_is_not_there_is_an_error_and_not_a_figure():
    done = bench("serve", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "127.0.0.1:9 does not answer" in done.stderr
