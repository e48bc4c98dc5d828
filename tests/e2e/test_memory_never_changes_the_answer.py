"""The same requests get the same answers, whatever happens to their KV memory (promise 3 of the design).

Every cluster is asked the same greedy and seeded requests, of one choice and of three, all at once. The first has
room for everything and no cached prefix; its answers, with the log-probability of every token, are what all others
must give, bit for bit.
"""

import asyncio
import re
from dataclasses import dataclass, field

import httpx
import pytest

SHARED_PREFIX = "Octavo keeps the memory of a language model in pages of sixteen tokens, as a printer folds a sheet. "
QUESTIONS = ("The capital of France is", "Once upon a time there was a", "A list of three colours:", "2 + 2 =")
AMPLE = {"num_device_blocks": 512, "num_host_blocks": 64, "dtype": "bfloat16"}
TIGHT = {**AMPLE, "num_device_blocks": 12, "num_host_blocks": 60}  # all requests together use 40, the largest alone 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request got: text, token count and log-probabilities by choice."""

    choices: tuple[tuple[str, str], ...]  # text and finish reason
    num_tokens: int
    logprobs: tuple[object, ...]
    num_cached_tokens: int = field(compare=False)


def requests() -> list[dict]:
    """Greedy and seeded, one choice and three, short prompts and prompts of a common prefix."""
    kinds = [
        {"temperature": 0, "n": 1},
        {"temperature": 0, "n": 3},
        {"temperature": 0.9, "seed": 7, "n": 1},
        {"temperature": 0.9, "seed": 8, "n": 3},
    ]
    return [
        {"prompt": prefix + QUESTIONS[index], "max_tokens": 16 + 4 * index, **kind}
        for prefix in ("", SHARED_PREFIX)
        for index, kind in enumerate(kinds)
    ]


async def ask(client: httpx.AsyncClient, body: dict) -> Answer:
    answer = await client.post("/v1/completions", json=body | {"logprobs": 0})
    assert answer.status_code == 200, answer.text
    choices, usage = answer.json()["choices"], answer.json()["usage"]
    assert [choice["index"] for choice in choices] == list(range(body["n"]))
    return Answer(
        tuple((choice["text"], choice["finish_reason"]) for choice in choices),
        usage["completion_tokens"],
        tuple(str(choice["logprobs"]) for choice in choices),
        usage["prompt_tokens_details"]["cached_tokens"],
    )


async def ask_all(cluster) -> list[Answer]:
    """All requests at once."""
    async with httpx.AsyncClient(base_url=cluster.base_url, timeout=120, trust_env=False) as client:
        return await asyncio.gather(*(ask(client, body) for body in requests()))


def preemptions(cluster) -> list[str]:
    """How each preemption so far was done."""
    log = (cluster.data_dir / "logs" / "scheduler.log").read_text()
    return re.findall(r"gives way by (\w+):", log)


@pytest.fixture(scope="module")
def ample(start_module_cluster):
    return start_module_cluster(**AMPLE)


@pytest.fixture(scope="module")
def expected(ample) -> list[Answer]:
    """With ample memory and nothing cached."""
    answers = asyncio.run(ask_all(ample))
    assert preemptions(ample) == []
    assert all(answer.num_cached_tokens == 0 for answer in answers[:4])
    return answers


def test_choices_of_a_seeded_request_differ_and_those_of_a_greedy_one_do_not(expected):
    for body, answer in zip(requests(), expected, strict=True):
        assert len(set(answer.choices)) == (body["n"] if body["temperature"] else 1)


def test_a_cached_prefix_changes_nothing(ample, expected):
    again = asyncio.run(ask_all(ample))
    assert again == expected
    assert all(answer.num_cached_tokens >= 16 for answer in again[4:])


def test_with_fewer_choices_each_stays_what_it_was(ample, expected):
    index, body = next((i, body) for i, body in enumerate(requests()) if body["n"] == 3 and body["temperature"])
    with httpx.Client(base_url=ample.base_url, timeout=60, trust_env=False) as client:
        for n in (1, 2):
            choices = client.post("/v1/completions", json=body | {"n": n}).json()["choices"]
            assert [choice["text"] for choice in choices] == [text for text, _ in expected[index].choices[:n]]


@pytest.mark.parametrize("mode", ["swap", "recompute"])
def test_forced_preemption_changes_nothing(start_cluster, expected, mode):
    cluster = start_cluster(**TIGHT, preemption_mode=mode)
    assert asyncio.run(ask_all(cluster)) == expected
    assert len(preemptions(cluster)) >= 3
    assert set(preemptions(cluster)) == {mode}


def test_a_kvmanager_killed_in_mid_stream_changes_nothing_and_nothing_is_recomputed(start_cluster, expected):
    cluster = start_cluster(**TIGHT, preemption_mode="swap")

    async def ask_and_kill() -> list[list[Answer]]:
        asking = asyncio.gather(*(ask_all(cluster) for _ in range(3)))  # so that there is time for two kills
        for _ in range(2):
            num_seen = len(preemptions(cluster))
            while len(preemptions(cluster)) == num_seen and not asking.done():  # noqa: ASYNC110 (a log has no event)
                await asyncio.sleep(0.02)
            assert not asking.done()
            killed = cluster.kill("kvmanager")
            await asyncio.to_thread(cluster.wait_restarted, "kvmanager", killed)
        return await asking

    assert asyncio.run(ask_and_kill()) == [expected] * 3
    assert set(preemptions(cluster)) == {"swap"}
    log = (cluster.data_dir / "logs" / "scheduler.log").read_text()
    assert len(re.findall(r"connected; the next step follows [1-9]", log)) >= 2  # each time the same epoch goes on
    assert "computed again" not in log
