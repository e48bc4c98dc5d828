"""What a search tells its client: its best outputs at its end, and nothing before."""

import asyncio
from contextlib import aclosing

import pytest

from doubles.cluster import Cluster
from doubles.model import distribution
from doubles.naive_beams import naive_beam_search
from doubles.peers import LetterTokenizer
from doubles.rig import make_request
from scheduler.core.request import BeamParams, FinishReason, OutputDelta, Request

THREE = BeamParams(width=3)
ENDING = frozenset(range(0, 97, 5))


async def read(cluster: Cluster, request: Request) -> list[OutputDelta]:
    async with aclosing(cluster.engine.generate(request)) as stream:
        return [delta async for delta in stream]


def expected(request: Request) -> list[tuple[tuple[int, ...], float]]:
    stop = request.stop
    assert request.beams is not None
    return naive_beam_search(
        distribution, request.prompt_token_ids, stop.max_tokens, request.beams, stop.ending_token_ids
    )[: request.num_choices]


async def test_each_choice_is_one_delta_with_the_output_and_its_score(cluster: Cluster):
    request = make_request(range(5), max_tokens=6, num_choices=2, beams=THREE)
    deltas = await read(cluster, request)
    assert [delta.choice_index for delta in deltas] == [0, 1]
    for delta, (output, score) in zip(deltas, expected(request), strict=True):
        assert delta.token_ids == output
        assert delta.text == LetterTokenizer().decode(output)
        assert delta.beam_score == pytest.approx(score) == sum(delta.logprobs) / len(output)
        assert delta.finish_reason is FinishReason.LENGTH
    await cluster.idle()


async def test_the_ending_token_counts_but_has_no_text_unless_it_is_asked_for(cluster: Cluster):
    for is_included in (False, True):
        request = make_request(
            range(5), 9, 3, beams=THREE, stop_token_ids=ENDING, include_stop_str_in_output=is_included
        )
        deltas = await read(cluster, request)
        ended = [delta for delta in deltas if delta.finish_reason is FinishReason.STOP]
        assert ended
        for delta in ended:
            assert delta.stop_reason == delta.token_ids[-1] in ENDING
            assert len(delta.text) == len(delta.token_ids) - (not is_included)
        assert [delta.token_ids for delta in deltas] == [output for output, _ in expected(request)]


async def test_searches_side_by_side_find_what_they_find_alone(cluster: Cluster):
    requests = [make_request([i, *range(i)], 8, 2, beams=BeamParams(2)) for i in range(4)]
    found = await asyncio.gather(*(read(cluster, request) for request in requests))
    for deltas, request in zip(found, requests, strict=True):
        assert [delta.token_ids for delta in deltas] == [output for output, _ in expected(request)]
    await cluster.idle()


async def test_an_aborted_search_ends_every_choice(cluster: Cluster):
    request = make_request(range(5), max_tokens=12, num_choices=2, beams=THREE)
    reading = asyncio.create_task(read(cluster, request))
    await cluster.until(lambda: cluster.engine.scheduler is not None and cluster.engine.scheduler.num_running > 0)
    assert cluster.engine.abort(request.request_id)
    assert [(delta.text, delta.finish_reason) for delta in await reading] == [("", FinishReason.ABORT)] * 2
    await cluster.idle()


async def test_a_client_that_goes_away_leaves_nothing(cluster: Cluster):
    request = make_request(range(5), max_tokens=12, num_choices=2, beams=THREE)
    stream = cluster.engine.generate(request)
    await cluster.until(lambda: cluster.engine.scheduler is not None and cluster.engine.scheduler.num_running > 0)
    await stream.aclose()
    await cluster.idle()
    assert not cluster.engine.abort(request.request_id)


async def test_lost_memory_in_mid_search_changes_nothing(cluster: Cluster):
    request = make_request(range(5), max_tokens=12, num_choices=3, beams=THREE)
    reading = asyncio.create_task(read(cluster, request))
    await cluster.until(lambda: cluster.engine.scheduler is not None and cluster.engine.scheduler.num_steps > 3)
    cluster.worker.restart()
    assert [delta.token_ids for delta in await reading] == [output for output, _ in expected(request)]
    await cluster.idle()
