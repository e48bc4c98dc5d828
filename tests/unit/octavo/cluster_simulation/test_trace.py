"""Recorded requests: both formats, what is wrong with a line, and copies of a trace."""

import json
import math
from pathlib import Path

import pytest

from octavo.cluster_simulation.trace import SPREAD_S, read_trace, scaled
from octavo.errors import TraceUnusable

TRACES = Path(__file__).parents[3] / "data" / "traces"
GOOD = {"timestamp": 1500, "input_length": 1100, "output_length": 7, "hash_ids": [4, 5, 6]}
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FIRST = "2023-11-16 18:15:46.6805900,374,44\n"


def mooncake(tmp_path, *requests):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(r if isinstance(r, str) else json.dumps(r) + "\n" for r in requests))
    return path


def azure(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return path


def test_a_mooncake_trace_is_read_as_published():
    requests = read_trace(TRACES / "mooncake_conversation.jsonl")
    first, last = requests[0], requests[-1]
    assert len(requests) == 240
    assert (first.time_s, first.num_prompt_tokens, first.num_output_tokens) == (0.0, 2290, 316)
    assert first.hash_ids == (0, 42, 43, 44, 45)
    assert last.time_s == 462.0


def test_an_azure_trace_is_read_as_published():
    requests = read_trace(TRACES / "azure_conversation.csv")
    assert len(requests) == 24
    assert [(r.num_prompt_tokens, r.num_output_tokens, r.hash_ids) for r in requests[:2]] == [
        (374, 44, ()),
        (396, 109, ()),
    ]
    assert requests[0].time_s == 0.0
    assert math.isclose(requests[1].time_s, 4.314579, abs_tol=1e-5)


def test_times_count_from_the_first_request(tmp_path):
    requests = read_trace(mooncake(tmp_path, GOOD, GOOD | {"timestamp": 4000}))
    assert [request.time_s for request in requests] == [0.0, 2.5]


def test_no_more_is_read_than_was_asked_for():
    assert len(read_trace(TRACES / "mooncake_conversation.jsonl", 5)) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{\n", "Expecting property name"),
        ({key: value for key, value in GOOD.items() if key != "output_length"}, "output_length is missing"),
        (GOOD | {"input_length": 0}, "input_length is 0; it must be a whole number from 1"),
        (GOOD | {"output_length": "7"}, "output_length is '7'"),
        (GOOD | {"hash_ids": [4, 5]}, "hash_ids has 2 entries, but an input_length of 1100 has 3 blocks of 512"),
        (GOOD | {"hash_ids": [4, 5, -1]}, "hash_ids must be whole numbers that are not negative"),
        (GOOD | {"timestamp": 1400}, "arrives 0.1 s before the request above it"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path, line, message):
    with pytest.raises(TraceUnusable, match=f"line 2: {message}"):
        read_trace(mooncake(tmp_path, GOOD, line))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("yesterday,374,44\n", "line 3: Invalid isoformat string: 'yesterday'"),
        ("2023-11-16 18:15:47,many,44\n", "line 3: invalid literal"),
        ("2023-11-16 18:15:47,374,0\n", "line 3: GeneratedTokens is 0"),
        ("2023-11-16 18:15:47,374\n", "line 3: "),
        ("2023-11-16 18:15:45,374,1\n", r"line 3: arrives 1.68\d* s before"),
    ],
)
def test_a_bad_row_is_named_with_what_is_wrong(tmp_path, line, message):
    with pytest.raises(TraceUnusable, match=message):
        read_trace(azure(tmp_path, HEADER + FIRST + line))


def test_a_file_that_is_no_trace_is_refused(tmp_path):
    with pytest.raises(TraceUnusable, match="line 1: has no column ContextTokens, GeneratedTokens"):
        read_trace(azure(tmp_path, "TIMESTAMP,tokens\n"))
    with pytest.raises(TraceUnusable, match="has no requests"):
        read_trace(azure(tmp_path, HEADER))
    with pytest.raises(TraceUnusable, match="cannot be read"):
        read_trace(tmp_path / "missing.jsonl")


def test_copies_come_within_a_minute_and_share_nothing(tmp_path):
    trace = read_trace(mooncake(tmp_path, GOOD, GOOD | {"timestamp": 31_500}))
    copies = list(scaled(trace, 3))
    assert [(round(r.time_s), r.copy) for r in copies] == [(0, 0), (20, 1), (30, 0), (40, 2), (50, 1), (70, 2)]
    assert max(r.time_s for r in copies) - trace[-1].time_s < SPREAD_S
    assert not set(copies[0].prefix_hashes(512)) & set(copies[1].prefix_hashes(512))
    assert copies[0].prefix_hashes(512) == copies[2].prefix_hashes(512)


def test_only_full_blocks_have_hashes(tmp_path):
    (request,) = read_trace(mooncake(tmp_path, GOOD))
    assert [len(request.prefix_hashes(size)) for size in (512, 256, 16)] == [2, 4, 68]
    assert len(set(request.prefix_hashes(16))) == 68
    assert {len(prefix_hash) for prefix_hash in request.prefix_hashes(16)} == {32}
