"""The engine over in-process peers: requests in, deltas out."""

import asyncio

import pytest

from doubles.cluster import Cluster, alone, read, read_choices
from doubles.model import expected_output
from doubles.peers import LetterTokenizer
from doubles.rig import make_request
from scheduler.core.request import FinishReason, Request
from scheduler.engine import EngineConfig
from scheduler.errors import NotReady, QueueFull, RequestFailed, RequestRefused


async def test_a_request_streams_the_text_it_has_alone(cluster: Cluster):
    request = make_request(range(10), max_tokens=12)
    text, token_ids, last = await read(cluster.engine.generate(request))
    assert text == alone(request)
    assert token_ids == expected_output(range(10), 12)
    assert last.finish_reason is FinishReason.LENGTH
    await cluster.idle()


async def test_many_at_once_in_a_pool_that_preempts_each_stream_what_they_have_alone(cluster: Cluster):
    requests = [make_request([i, *range(i)], max_tokens=20 + i) for i in range(8)]
    results = await asyncio.gather(*(read(cluster.engine.generate(request)) for request in requests))
    assert [text for text, _, _ in results] == [alone(request) for request in requests]
    assert cluster.engine.scheduler is not None
    assert cluster.engine.scheduler.num_preemptions > 0
    await cluster.idle()


async def test_a_stop_token_counts_but_has_no_text(cluster: Cluster):
    output = expected_output(range(5), 3)
    request = make_request(range(5), max_tokens=9, stop_token_ids=frozenset({output[2]}))
    text, token_ids, last = await read(cluster.engine.generate(request))
    assert text == LetterTokenizer().decode(output[:2])
    assert token_ids == output
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, output[2])


async def test_a_stop_string_over_tokens_ends_the_request_and_frees_its_blocks(cluster: Cluster):
    whole = alone(make_request(range(5), max_tokens=12))
    request = make_request(range(5), max_tokens=12, stop=(whole[4:7],))
    text, token_ids, last = await read(cluster.engine.generate(request))
    assert text == whole[:4]
    assert len(token_ids) == 7
    assert (last.finish_reason, last.stop_reason) == (FinishReason.STOP, whole[4:7])
    await cluster.idle()


async def test_a_stop_string_completed_by_the_last_allowed_token_is_a_stop(cluster: Cluster):
    whole = alone(make_request(range(5), max_tokens=6))
    _, _, last = await read(cluster.engine.generate(make_request(range(5), max_tokens=6, stop=(whole[4:],))))
    assert last.finish_reason is FinishReason.STOP


async def test_held_back_text_is_flushed_at_the_end(cluster: Cluster):
    whole = alone(make_request(range(5), max_tokens=6))
    text, _, last = await read(cluster.engine.generate(make_request(range(5), max_tokens=6, stop=(whole[4:] + "?",))))
    assert text == whole
    assert last.finish_reason is FinishReason.LENGTH


async def test_no_tokens_asked_for_none_computed(cluster: Cluster):
    text, token_ids, last = await read(cluster.engine.generate(make_request(range(5), max_tokens=0)))
    assert (text, token_ids, last.finish_reason) == ("", [], FinishReason.LENGTH)
    assert cluster.worker.steps == []


async def test_choices_stream_side_by_side_each_with_the_text_it_has_alone(cluster: Cluster):
    requests = [make_request([i, *range(20)], max_tokens=30, num_choices=3) for i in range(2)]
    results = await asyncio.gather(*(read_choices(cluster.engine.generate(request)) for request in requests))
    assert results == [[alone(request, choice) for choice in range(3)] for request in requests]
    assert cluster.engine.scheduler is not None
    assert cluster.engine.scheduler.num_swaps > 0
    await cluster.idle()


async def test_a_choice_ends_alone_at_a_stop_string(cluster: Cluster):
    request = make_request(range(5), max_tokens=9, num_choices=3)
    texts = [alone(request, choice) for choice in range(3)]
    stopped = make_request(range(5), 9, 3, stop=(texts[1][:2],))  # the parent of the others goes on
    assert await read_choices(cluster.engine.generate(stopped)) == [texts[0], "", texts[2]]
    stopped = make_request(range(5), 9, 3, stop=(texts[0][:1],))  # at its first token, just forked
    assert (await read_choices(cluster.engine.generate(stopped)))[0] == ""
    await cluster.idle()


async def test_choices_without_tokens_end_at_once(cluster: Cluster):
    assert await read_choices(cluster.engine.generate(make_request(range(5), 0, num_choices=3))) == ["", "", ""]


async def test_cached_tokens_are_counted(cluster: Cluster):
    await read(cluster.engine.generate(make_request(range(12))))
    _, _, last = await read(cluster.engine.generate(make_request(range(12))))
    assert last.num_cached_tokens == 8


class TestRefusals:
    """Before the first delta, at the call."""

    async def test_what_can_never_fit_is_refused_and_smaller_ones_behind_it_finish(self, cluster: Cluster):
        with pytest.raises(RequestRefused, match="needs 33 blocks of 4 tokens"):
            cluster.engine.generate(make_request([1] * 120, max_tokens=10))
        request = make_request(range(5))
        assert (await read(cluster.engine.generate(request)))[0] == alone(request)

    async def test_a_full_queue_says_when_to_come_back(self, cluster: Cluster):
        streams = [cluster.engine.generate(make_request(range(5))) for _ in range(8)]
        with pytest.raises(QueueFull, match=r"8 sequences wait already.+ more than 8") as caught:
            cluster.engine.generate(make_request(range(5)))
        assert caught.value.retry_after_s > 0
        for stream in streams:
            await stream.aclose()
        await cluster.idle()

    async def test_a_call_is_queued_whole_or_not_at_all(self, cluster: Cluster):
        call = [make_request(range(5), num_choices=3) for _ in range(2)]
        cluster.engine.check_together(call)
        with pytest.raises(RequestRefused, match="9 sequences in one call, but at most 8 may wait"):
            cluster.engine.check_together([*call, call[0]])
        streams = [cluster.engine.generate(make_request(range(5))) for _ in range(4)]
        with pytest.raises(QueueFull, match="with the 6 of this request"):
            cluster.engine.check_together(call)
        for stream in streams:
            await stream.aclose()
        await cluster.idle()

    async def test_each_choice_counts_in_the_queue(self, cluster: Cluster):
        streams = [cluster.engine.generate(make_request(range(5), num_choices=4)) for _ in range(2)]
        with pytest.raises(QueueFull, match="8 sequences wait already"):
            cluster.engine.generate(make_request(range(5)))
        for stream in streams:
            await stream.aclose()

    async def test_more_choices_than_may_run_at_once(self, cluster: Cluster):
        with pytest.raises(RequestRefused, match="asks for 9 choices at once, but must ask for 1 to 8"):
            cluster.engine.check(make_request(range(5), num_choices=9))

    async def test_a_request_id_in_use(self, cluster: Cluster):
        request = make_request(range(5))
        stream = cluster.engine.generate(request)
        with pytest.raises(RequestRefused, match="is in use"):
            cluster.engine.check(request)
        await stream.aclose()

    async def test_before_a_worker_attached(self):
        cluster = Cluster()
        with pytest.raises(NotReady, match="waiting for the gpuworker"):
            cluster.engine.generate(make_request(range(5)))
        assert cluster.engine.max_model_len == 0
        await cluster.engine.close()


class TestAbandoning:
    """A client that goes away frees its blocks."""

    async def test_before_the_first_delta(self, cluster: Cluster):
        await cluster.engine.generate(make_request(range(5))).aclose()
        await cluster.idle()

    async def test_in_the_middle(self, cluster: Cluster):
        stream = cluster.engine.generate(make_request(range(5), max_tokens=40))
        await anext(stream)
        await stream.aclose()
        await cluster.idle()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    async def test_while_its_step_computes(self, cluster: Cluster):
        cluster.worker.thaw.clear()
        stream = cluster.engine.generate(make_request(range(5), max_tokens=40))
        await asyncio.sleep(0.01)
        await stream.aclose()
        cluster.worker.thaw.set()
        await cluster.idle()

    async def test_many_with_random_ends_return_to_the_baseline(self, cluster: Cluster):
        async def some(request: Request, num_deltas: int) -> None:
            stream = cluster.engine.generate(request)
            for _ in range(num_deltas):
                await anext(stream)
            await stream.aclose()

        for round_index in range(10):
            await asyncio.gather(*(some(make_request(range(9), 9), (i * round_index) % 9) for i in range(8)))
        await cluster.idle()

    async def test_an_abort_ends_the_stream_with_its_reason(self, cluster: Cluster):
        request = make_request(range(5), max_tokens=40)
        stream = cluster.engine.generate(request)
        await anext(stream)
        assert cluster.engine.abort(request.request_id)
        assert not cluster.engine.abort(request.request_id)
        assert (await read(stream))[2].finish_reason is FinishReason.ABORT
        await cluster.idle()

    async def test_what_is_thrown_in_comes_out_and_abandons(self, cluster: Cluster):
        stream = cluster.engine.generate(make_request(range(5), max_tokens=40))
        with pytest.raises(KeyError, match="gone"):
            await stream.athrow(KeyError("gone"))
        await cluster.idle()


async def test_draining_refuses_new_requests_and_waits_for_the_accepted(cluster: Cluster):
    request = make_request(range(5), max_tokens=20)
    reading = asyncio.create_task(read(cluster.engine.generate(request)))
    await asyncio.sleep(0)
    draining = asyncio.create_task(cluster.engine.drain(5))
    await asyncio.sleep(0)
    with pytest.raises(NotReady, match="draining"):
        cluster.engine.generate(make_request(range(5)))
    await draining
    assert (await reading)[0] == alone(request)


async def test_draining_ends_at_its_deadline_and_closing_fails_what_is_open(cluster: Cluster):
    cluster.worker.thaw.clear()
    stream = cluster.engine.generate(make_request(range(5)))
    await cluster.engine.drain(0.01)
    await cluster.engine.close()
    with pytest.raises(RequestFailed, match="the scheduler stops"):
        await anext(stream)


async def test_the_context_can_be_made_shorter():
    cluster = Cluster(config=EngineConfig(max_model_len=20))
    await cluster.engine.start()
    await cluster.ready()
    assert cluster.engine.max_model_len == 20
    await cluster.engine.close()
