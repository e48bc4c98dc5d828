"""How servers are compared: ratios, the table, and peers that cannot be had."""

import asyncio
import importlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from octavo.bench.records import RequestRecord
from octavo.bench.summary import summarize

FOLDER = Path(__file__).parents[3] / "benchmarks" / "peers"


@pytest.fixture
def peers(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("OCTAVO_CACHE_DIR", str(tmp_path))
    return importlib.import_module("peers")


@pytest.fixture
def compare(peers):
    return importlib.import_module("compare")


def run_of(seconds: float):
    """A run that gave 100 tokens in so many seconds."""
    return summarize([RequestRecord(0.0, seconds, (seconds / 2, seconds), 10, 100, 100)])


def test_a_ratio_is_the_median_over_rounds_and_never_mixes_two_rounds(compare):
    own = [run_of(1.0), run_of(10.0), run_of(2.0)]  # the second round was disturbed, for both
    other = [run_of(2.0), run_of(30.0), run_of(8.0)]
    (measure,) = compare.MEASURES["batch"]
    assert compare.ratio(own, other, measure) == pytest.approx(3.0)


def test_more_is_better_in_every_measure(compare):
    for measures in compare.MEASURES.values():
        for measure in measures:
            assert measure.value(run_of(1.0)) > measure.value(run_of(2.0)), measure.unit


def test_the_table_has_a_ratio_for_each_peer_and_a_reason_for_each_missing_one(compare):
    runs = {"batch": {"octavo": [run_of(1.0)], "llama.cpp": [run_of(2.5)]}}
    table = compare.markdown(runs, {"vllm": "needs AVX-512"}, 1)
    assert "| batch | output tokens/s | octavo | 100 |  |" in table
    assert "| batch | output tokens/s | llama.cpp | 40 | 2.50 |" in table
    assert "- vllm: needs AVX-512" in table


def test_a_server_that_fails_or_is_too_slow_leaves_with_a_reason_and_all_its_figures(compare, monkeypatch):
    async def measure(target, loads, *_):
        if target.url == "slow" and loads[0].seed == 2:
            await asyncio.sleep(60)
        errors = {"HTTP 500: broken": 1} if target.url == "broken" else {}
        return [SimpleNamespace(summary=replace(run_of(1.0), errors=errors))]

    monkeypatch.setattr(compare, "measure", measure)
    servers = {name: compare.Target(url=name) for name in ("octavo", "slow", "broken")}
    arguments = SimpleNamespace(workloads="batch", rounds=3, num_requests=None, limit=0.05)
    missing: dict[str, str] = {}
    runs = asyncio.run(compare._rounds(servers, arguments, missing))
    assert {name: len(summaries) for name, summaries in runs["batch"].items()} == {"octavo": 3}
    assert missing == {
        "slow": "batch: a run took more than 0.05 s",
        "broken": "batch: requests failed: HTTP 500: broken",
    }


def test_a_peer_that_cannot_be_installed_says_why(peers, tmp_path):
    broken = replace(peers.PEERS["xllamacpp"], requirements=("--no-index", "no-such-package-of-ours"))
    with pytest.raises(peers.PeerUnavailable, match="No matching distribution found"):
        peers.install(broken, tmp_path / "log")


def test_a_peer_that_ends_at_once_says_why_and_leaves_nothing_behind(peers, tmp_path):
    words = lambda launch: ["/bin/sh", "-c", "echo the model is too large; exit 3"]  # noqa: E731
    peer = replace(peers.PEERS["xllamacpp"], command=words)
    launch = peers.Launch(Path("python"), Path("m.gguf"), 1, 1)

    async def start() -> None:
        async with peers.running(peer, launch, "http://127.0.0.1:9", tmp_path / "log"):
            pytest.fail("it is not running")

    with pytest.raises(peers.PeerUnavailable, match="exit code 3: the model is too large"):
        asyncio.run(start())
