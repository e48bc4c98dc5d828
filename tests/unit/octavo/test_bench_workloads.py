"""What a workload or a trace asks for, and the words that it is given."""

import random
import statistics
from dataclasses import replace

import pytest

from octavo.bench.loads import LoadOptions, make_workload
from octavo.bench.prompts import CORPUS, PromptWriter, Words
from octavo.bench.traces import read_trace
from octavo.bench.workload import RECIPES, Passage, RequestShape, poisson_arrivals
from octavo.errors import BenchFailed

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:15:46.6805900,374,44\r
2023-11-16 18:15:50.9951690,396,109\r
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 500, "hash_ids": [0, 1, 2]}
{"timestamp": 2500, "input_length": 600, "output_length": 7, "hash_ids": [0, 9]}
"""
LENGTHS = "num_prefill_tokens,num_decode_tokens\n74,918\n290,905\n"


@pytest.fixture
def written(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text, newline="")
        return path

    return write


@pytest.mark.parametrize(
    ("name", "num_requests", "at_once", "lengths"),
    [("single", 16, 1, (128, 128)), ("batch", 32, 32, (128, 128)), ("prefix", 64, 16, (544, 32))],
)
def test_a_named_workload_has_the_sizes_that_it_promises(name, num_requests, at_once, lengths):
    workload = make_workload(LoadOptions(workload=name))
    assert (len(workload.shapes), workload.max_concurrency) == (num_requests, at_once)
    assert {(shape.num_prompt_tokens, shape.num_output_tokens) for shape in workload.shapes} == {lengths}


def test_requests_of_one_size_are_sent_all_at_once():
    workload = make_workload(LoadOptions(lengths=(7, 3), num_requests=4))
    assert workload.max_concurrency == 4
    assert [(shape.num_prompt_tokens, shape.num_output_tokens) for shape in workload.shapes] == [(7, 3)] * 4


def test_the_lengths_of_mix_are_spread_around_their_means():
    shapes = RECIPES["mix"].make(20_000, random.Random(1)).shapes
    assert statistics.fmean(shape.num_prompt_tokens for shape in shapes) == pytest.approx(160, rel=0.03)
    assert statistics.fmean(shape.num_output_tokens for shape in shapes) == pytest.approx(200, rel=0.03)
    assert statistics.median(shape.num_output_tokens for shape in shapes) < 160
    assert max(shape.num_output_tokens for shape in shapes) == 1024


def test_equal_options_make_equal_requests_and_another_seed_others():
    options = LoadOptions(workload="mix", rate=3.0)
    assert make_workload(options) == make_workload(options)
    assert make_workload(options) != make_workload(replace(options, seed=1))


def test_poisson_arrivals_come_at_the_rate_and_without_a_pattern():
    arrivals_s = poisson_arrivals(20_000, 8.0, random.Random(2))
    gaps_s = [b - a for a, b in zip([0.0, *arrivals_s], arrivals_s, strict=False)]
    assert statistics.fmean(gaps_s) == pytest.approx(1 / 8, rel=0.03)
    assert statistics.stdev(gaps_s) == pytest.approx(1 / 8, rel=0.03)  # of an exponential distribution


def test_a_rate_makes_an_open_loop_and_a_concurrency_a_closed_one(written):
    open_loop = make_workload(LoadOptions(workload="batch", rate=2.0))
    assert open_loop.max_concurrency is None
    assert open_loop.shapes[-1].arrival_s > 0
    trace = written("azure.csv", AZURE)
    closed = make_workload(LoadOptions(trace=trace, max_concurrency=3))
    assert closed.max_concurrency == 3
    assert {shape.arrival_s for shape in closed.shapes} == {0.0}


def test_an_azure_trace_keeps_its_lengths_and_times(written):
    workload = make_workload(LoadOptions(trace=written("azure.csv", AZURE)))
    assert workload.max_concurrency is None
    assert [(shape.num_prompt_tokens, shape.num_output_tokens) for shape in workload.shapes] == [(374, 44), (396, 109)]
    assert [shape.arrival_s for shape in workload.shapes] == pytest.approx([0.0, 4.314579], abs=1e-5)


def test_equal_hash_ids_of_a_mooncake_trace_are_equal_text(written):
    first, second = read_trace(written("mooncake.jsonl", MOONCAKE))
    assert first.passages == (Passage("block 0", 512), Passage("block 1", 512), Passage("block 2", 76))
    assert second.arrival_s == 2.5
    writer = PromptWriter(range(10_000), seed=0)
    one, other = writer.write(first), writer.write(second)
    assert (len(one), len(other)) == (1100, 600)
    assert one[:512] == other[:512]
    assert one[512:528] != other[512:528]


def test_a_file_of_lengths_has_no_times(written):
    shapes = read_trace(written("lengths.csv", LENGTHS))
    assert [(shape.num_prompt_tokens, shape.num_output_tokens) for shape in shapes] == [(74, 918), (290, 905)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,y\n1,2\n", "has the columns \\['x', 'y'\\]"),
        ("a.jsonl", "{}\n", "a line cannot be read"),
        ("a.csv", "num_prefill_tokens,num_decode_tokens\n", "has no requests"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_by_name(written, name, text, message):
    path = written(name, text)
    with pytest.raises(BenchFailed, match=f"--trace {path}.*{message}"):
        read_trace(path)


def test_a_trace_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(BenchFailed, match="No such file"):
        read_trace(tmp_path / "none.csv")


def test_an_unknown_workload_is_refused_with_the_known_ones():
    with pytest.raises(BenchFailed, match="'nix', but must be one of single, batch, prefix, mix"):
        make_workload(LoadOptions(workload="nix"))


def test_prompts_have_exact_lengths_and_beginnings_of_their_own():
    writer = PromptWriter(range(7000), seed=3)
    prompts = [writer.write(shape) for shape in RECIPES["batch"].make(500, random.Random(0)).shapes]
    assert {len(prompt) for prompt in prompts} == {128}
    assert len({tuple(prompt[:16]) for prompt in prompts}) == 500


def test_a_shared_passage_is_the_same_in_every_prompt_and_another_with_another_seed():
    shapes = RECIPES["prefix"].make(5, random.Random(0)).shapes
    prompts = [PromptWriter(range(7000), seed=3).write(shape) for shape in shapes]
    assert len({tuple(prompt[:512]) for prompt in prompts}) == 1
    assert len({tuple(prompt[512:]) for prompt in prompts}) == 5
    assert PromptWriter(range(7000), seed=4).write(shapes[0])[:512] != prompts[0][:512]


def test_without_a_tokenizer_a_prompt_has_as_many_words():
    text = CORPUS.read_text()
    words = Words(text)
    assert words.decode(words.encode(text)) == " ".join(text.split())
    prompt = PromptWriter(words.encode(text), 0, words.decode).write(RequestShape((Passage("own", 40),), 1))
    assert len(prompt.split()) == 40
    assert set(prompt.split()) <= set(text.split())
