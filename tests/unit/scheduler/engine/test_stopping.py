"""When an output ends, what of it is text, and what is said of the reason."""

import pytest

from doubles.cluster import Cluster, read
from doubles.model import expected_output
from doubles.peers import LetterTokenizer
from doubles.rig import make_request
from scheduler.core.request import FinishReason, OutputDelta, Request

PROMPT = range(5)
OUTPUT = expected_output(PROMPT, 12)
TEXT = LetterTokenizer().decode(OUTPUT)
STOP, LENGTH = FinishReason.STOP, FinishReason.LENGTH


async def run(cluster: Cluster, **stop: object) -> tuple[str, int, OutputDelta]:
    """Text, number of tokens and the last delta."""
    request: Request = make_request(PROMPT, **{"max_tokens": 12, **stop})
    text, token_ids, last = await read(cluster.engine.generate(request))
    assert token_ids == OUTPUT[: len(token_ids)]
    return text, len(token_ids), last


def test_the_letters_of_the_output_differ_where_the_tests_need_it():
    assert len(set(OUTPUT[:5])) == 5
    assert TEXT.count(TEXT[1:3]) == 1


@pytest.mark.parametrize(
    ("stop", "text", "num_tokens", "reason", "stop_reason"),
    [
        ({"stop_token_ids": frozenset({OUTPUT[3]})}, TEXT[:3], 4, STOP, OUTPUT[3]),
        ({"eos_token_ids": frozenset({OUTPUT[3]})}, TEXT[:3], 4, STOP, None),
        ({"eos_token_ids": frozenset({OUTPUT[3]}), "ignore_eos": True}, TEXT, 12, LENGTH, None),
        ({"eos_token_ids": frozenset({OUTPUT[3]}), "max_tokens": 4}, TEXT[:3], 4, STOP, None),
        (
            {"stop_token_ids": frozenset({OUTPUT[3]}), "include_stop_str_in_output": True},
            TEXT[:4],
            4,
            STOP,
            OUTPUT[3],
        ),
        ({"stop": (TEXT[1:3],)}, TEXT[:1], 3, STOP, TEXT[1:3]),
        ({"stop": (TEXT[1:3],), "include_stop_str_in_output": True}, TEXT[:3], 3, STOP, TEXT[1:3]),
        ({"stop": (TEXT[1:3],), "min_tokens": 3}, TEXT, 12, LENGTH, None),
        ({"stop": (TEXT[1:3], TEXT[6:8]), "min_tokens": 5}, TEXT[:6], 8, STOP, TEXT[6:8]),
    ],
)
async def test_an_output_ends(cluster: Cluster, stop, text, num_tokens, reason, stop_reason):
    told, count, last = await run(cluster, **stop)
    assert (told, count) == (text, num_tokens)
    assert (last.finish_reason, last.stop_reason) == (reason, stop_reason)
    await cluster.idle()


async def test_held_back_text_comes_with_the_log_probabilities_of_its_tokens(cluster: Cluster):
    request = make_request(PROMPT, 12, stop=(TEXT[1:4] + "never",))
    deltas = [delta async for delta in cluster.engine.generate(request)]
    for delta in deltas:
        assert len(delta.text) == len(delta.token_ids) == len(delta.logprobs) == len(delta.token_logprobs)
    assert "".join(delta.text for delta in deltas) == TEXT
    assert max(len(delta.token_ids) for delta in deltas) > 1
