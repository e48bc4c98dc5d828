"""What the comparisons conclude from what clusters answer; the clusters are fakes with a speed of their own."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from rich.console import Console

from octavo.bench.records import RequestRecord
from octavo.bench.summary import summarize
from octavo.live.block_sizes import block_sizes
from octavo.live.cluster import Measured
from octavo.live.comparisons import COMPARISONS, compare
from octavo.live.lab import Lab
from octavo.live.loads import Scale
from octavo.live.prefix import shared_prefix
from octavo.live.samples import Look, Sample, Samples, Slots
from octavo.live.sharing import memory_saved
from octavo.live.swapping import swap_or_recompute
from octavo.settings import PreemptionMode
from octavo.simulation.spaces import SpaceName


class FakeCluster:
    """Takes ``slowness`` seconds for a token, one request after the other, and shares a quarter of its blocks."""

    def __init__(self, slowness):
        self.slowness = slowness
        self.asked = []

    async def run(self, workload, more=None, *, has_new_text=True):
        self.asked.append((workload, more, has_new_text))
        records = []
        end_s = 0.0
        for shape in workload.shapes:
            end_s = max(end_s, shape.arrival_s) + self.slowness * shape.num_tokens
            tokens = shape.num_output_tokens
            records.append(RequestRecord(shape.arrival_s, end_s, (end_s,), shape.num_prompt_tokens, tokens, tokens))
        seen = Sample(2, 1, Look(Slots(100, 90, 5, 0), 8, 6))
        return Measured(summarize(records), Samples([seen]))

    async def num_preemptions(self):
        return 7


class FakeLab(Lab):
    """``slowness(space, pool)`` says how slow a cluster is."""

    @asynccontextmanager
    async def cluster(self, space, pool, lengths):
        yield CLUSTERS.setdefault((space, pool), FakeCluster(SLOWNESS[0](space, pool)))


def same_speed(_space, _pool):
    return 1.0


CLUSTERS = {}
SLOWNESS = [same_speed]


@pytest.fixture
def rows():
    """Runs a comparison with a speed; returns its rows by name."""

    def run(comparison, slowness):
        CLUSTERS.clear()
        SLOWNESS[0] = slowness
        lab = FakeLab("tiny", 1, Scale(8), Console(quiet=True))
        return {row.name: row for row in asyncio.run(comparison(lab)).rows}

    return run


def test_a_prefix_speeds_up_by_the_ratio_of_request_rates_and_is_computed_before(rows):
    found = rows(shared_prefix, lambda space, _: 3.0 if space is SpaceName.ORACLE else 1.0)
    assert found["1 shot 80 tokens"].ours == pytest.approx(3.0)
    assert found["5 shot 341 tokens"].paper == 3.58
    for cluster in CLUSTERS.values():
        prefix, translations = cluster.asked[:2]
        assert len(prefix[0].shapes) == 1
        assert translations[2] is False  # the same text, so that the prefix is found
        assert translations[0].shapes[0].passages[0] == prefix[0].shapes[0].passages[0]


def test_swapping_and_recomputation_differ_in_nothing_but_the_mode(rows):
    found = rows(swap_or_recompute, lambda _, pool: 2.0 if pool.preemption_mode is PreemptionMode.RECOMPUTE else 1.0)
    assert found["latency, recompute / swap, blocks of 16 (2 here)"].ours == pytest.approx(2.0)
    assert found["gave way by swap, blocks of 256 (32 here)"].ours == 7
    assert {pool.num_slots for _, pool in CLUSTERS} == {pool.num_host_slots for _, pool in CLUSTERS} == {256}


def test_a_block_size_is_compared_with_blocks_of_16(rows):
    found = rows(block_sizes, lambda _, pool: 4.0 if pool.block_size == 1 else 1.0)
    assert found["blocks of 1 / blocks of 16"].ours == pytest.approx(0.25)
    assert found["blocks of 256 / blocks of 16"].ours == pytest.approx(1.0)
    assert len(found) == 8


def test_sharing_is_measured_for_outputs_and_for_beams(rows):
    found = rows(memory_saved, same_speed)
    assert {row.ours for row in found.values()} == {25.0}
    assert found["beam_search 6"].paper == 55.16


def test_every_comparison_has_a_report_with_the_papers_numbers():
    CLUSTERS.clear()
    SLOWNESS[0] = same_speed
    lab = FakeLab("tiny", 1, Scale(8), Console(quiet=True))
    reports = asyncio.run(compare(list(COMPARISONS), lab))
    assert [report.key for report in reports] == [
        "waste",
        "batched",
        "rates",
        "sharing",
        "prefix",
        "swapping",
        "block-sizes",
    ]
    for report in reports:
        assert any(row.paper is not None for row in report.rows)
        told = report.as_json()["rows"]
        assert all(row["ratio"] == pytest.approx(row["ours"] / row["paper"]) for row in told if row["paper"])
