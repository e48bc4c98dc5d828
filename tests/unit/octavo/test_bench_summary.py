"""The figures of a run, from records with known ones."""

import random
import statistics

import numpy
import pytest

from octavo.bench.records import RequestRecord
from octavo.bench.summary import Objectives, distribution, summarize


def record(sent_s=0.0, chunks=(1.0, 1.5, 2.0), num_output_tokens=3, **more) -> RequestRecord:
    fields = {"num_prompt_tokens": 10, "num_wanted_tokens": num_output_tokens, "ended_s": chunks[-1] if chunks else 9.0}
    return RequestRecord(
        sent_s=sent_s, chunk_times_s=tuple(chunks), num_output_tokens=num_output_tokens, **(fields | more)
    )


def test_percentiles_are_those_of_numpy():
    values = [random.Random(5).lognormvariate(0, 1) for _ in range(137)]
    found = distribution(values)
    assert found is not None
    expected = numpy.percentile(values, [50, 90, 99])
    assert [found.p50, found.p90, found.p99] == pytest.approx(expected)
    assert found.mean == pytest.approx(statistics.fmean(values))


def test_values_that_are_not_there_are_left_out():
    assert distribution([None, None]) is None
    found = distribution([None, 2.0])
    assert found is not None
    assert (found.mean, found.p50, found.p99) == (2.0, 2.0, 2.0)


def test_the_latencies_of_a_request_are_measured_from_its_sending():
    one = record(sent_s=0.25, chunks=(1.0, 1.5, 2.5), num_output_tokens=4, ended_s=3.0)
    assert one.ttft_s == 0.75
    assert one.tpot_s == 0.5  # three tokens after the first took 1.5 s
    assert one.itl_s == [0.5, 1.0]
    assert one.e2e_s == 2.75
    assert one.normalized_s == 2.75 / 4


def test_a_request_of_one_token_has_no_time_per_output_token():
    assert record(chunks=(1.0,), num_output_tokens=1).tpot_s is None


def test_rates_are_over_the_time_from_the_first_sending_to_the_last_end():
    summary = summarize([record(sent_s=1.0), record(sent_s=2.0, chunks=(3.0, 5.0), num_output_tokens=5)])
    assert summary.duration_s == 4.0
    assert summary.requests_per_s == 0.5
    assert summary.output_tokens_per_s == 2.0
    assert summary.total_tokens_per_s == 7.0


def test_a_failed_request_counts_as_an_error_and_not_in_the_figures():
    failed = record(chunks=(), num_output_tokens=0, error="HTTP 503: busy")
    summary = summarize([record(), failed, failed])
    assert summary.errors == {"HTTP 503: busy": 2}
    assert (summary.num_requests, summary.num_completed) == (3, 1)
    assert summary.num_prompt_tokens == 10
    assert summary.good_share == pytest.approx(1 / 3)
    assert summary.ttft is not None
    assert summary.ttft.p99 == 1.0


def test_a_good_request_meets_every_objective():
    slow_start, slow_end = record(chunks=(4.0, 4.1)), record(chunks=(1.0, 9.0))
    records = [record(), slow_start, slow_end]
    assert summarize(records, Objectives(ttft_s=2.0)).good_share == pytest.approx(2 / 3)
    assert summarize(records, Objectives(tpot_s=1.0)).good_share == pytest.approx(2 / 3)
    both = summarize(records, Objectives(ttft_s=2.0, tpot_s=1.0))
    assert both.good_share == pytest.approx(1 / 3)
    assert both.good_requests_per_s == pytest.approx(1 / 9)


def test_the_prefix_hit_rate_is_over_the_prompts_of_which_the_server_tells():
    told, silent = record(num_cached_tokens=6), record(num_cached_tokens=None)
    assert summarize([told, silent]).prefix_hit_rate == 0.6
    assert summarize([silent]).prefix_hit_rate is None


def test_outputs_that_ended_early_are_counted():
    assert summarize([record(), record(num_wanted_tokens=7)]).num_ended_early == 1


def test_no_records_make_a_summary_without_figures():
    summary = summarize([])
    assert (summary.duration_s, summary.requests_per_s, summary.good_share) == (0.0, 0.0, 0.0)
    assert summary.ttft is summary.prefix_hit_rate is summary.decode_tokens_per_s is None
