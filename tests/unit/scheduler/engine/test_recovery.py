"""Either peer may go away at any moment; clients see no gap and no repeat."""

import asyncio
from itertools import pairwise

import pytest

from doubles.cluster import Cluster, alone, read
from doubles.rig import make_request
from scheduler.core.scheduler import Scheduler
from scheduler.engine import EngineConfig
from scheduler.errors import NotReady, RequestFailed

REQUESTS = [make_request([i, 1, 2, 3, 4, 5], max_tokens=30) for i in range(3)]


async def start(cluster: Cluster, num_steps: int = 5) -> list[asyncio.Task]:
    """Three streams, some steps on their way."""
    tasks = [asyncio.create_task(read(cluster.engine.generate(request))) for request in REQUESTS]
    await cluster.until(lambda: len(cluster.worker.steps) >= num_steps)
    return tasks


async def check(cluster: Cluster, tasks: list[asyncio.Task]) -> None:
    assert [text for text, _, _ in await asyncio.gather(*tasks)] == [alone(request) for request in REQUESTS]
    await cluster.idle()


async def test_a_lost_grant_is_asked_for_again_under_the_same_id(cluster: Cluster):
    tasks = await start(cluster)
    cluster.memory.lose_answers = 2
    await check(cluster, tasks)
    assert sum(a == b for a, b in pairwise(cluster.memory.plans)) == 2


async def test_a_lost_result_is_asked_for_again_under_the_same_id(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.lose_answers = 2
    await check(cluster, tasks)
    assert sum(a == b for a, b in pairwise(cluster.worker.steps)) == 2


async def test_a_step_is_queued_while_one_computes_and_never_more(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: cluster.worker.num_in_hand == 2)
    cluster.worker.thaw.set()
    await check(cluster, tasks)
    assert cluster.worker.most_in_hand == 2


async def test_without_overlap_there_is_one_step_at_a_time():
    cluster = Cluster(config=EngineConfig(overlaps=False))
    await cluster.engine.start()
    await cluster.ready()
    await check(cluster, await start(cluster))
    assert cluster.worker.most_in_hand == 1
    await cluster.engine.close()


async def test_a_kvmanager_that_restarts_while_a_step_computes_gets_the_plan_again_and_the_worker_no_step_twice(
    cluster: Cluster,
):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: cluster.worker.num_in_hand == 2)
    cluster.memory.lose_answers = 1
    cluster.worker.thaw.set()
    await cluster.until(lambda: not cluster.memory.is_open)
    await check(cluster, tasks)
    assert sum(a == b for a, b in pairwise(cluster.memory.plans)) == 1
    assert cluster.worker.steps == sorted(set(cluster.worker.steps))
    assert cluster.worker.num_attached == 1


async def test_a_worker_that_dies_with_two_steps_in_hand_has_both_computed_again(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: cluster.worker.num_in_hand == 2)
    cluster.worker.restart()
    cluster.worker.thaw.set()
    await check(cluster, tasks)
    assert cluster.memory.epoch == 2


async def test_an_engine_that_closes_with_two_steps_in_hand_leaves_none_waiting(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: cluster.worker.num_in_hand == 2)
    await cluster.engine.close()
    assert cluster.worker.num_in_hand == 0
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, RequestFailed)


async def test_requests_wait_for_a_kvmanager_that_is_away_and_nothing_is_recomputed(cluster: Cluster):
    tasks = await start(cluster)
    cluster.memory.kill()
    await cluster.until(lambda: not cluster.engine.readiness.ready)
    assert cluster.engine.readiness.reason == "the kvmanager is dead"
    cluster.memory.restart()
    await check(cluster, tasks)
    assert cluster.worker.model.num_computed == sum(6 + 29 for _ in REQUESTS)


async def test_a_kvmanager_without_its_journal_has_everything_recomputed(cluster: Cluster):
    tasks = await start(cluster)
    cluster.memory.kill(journal_lost=True)
    cluster.memory.restart()
    await check(cluster, tasks)


async def test_a_worker_that_lost_its_memory_recomputes_without_gap_or_repeat(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.restart()
    await cluster.until(lambda: cluster.memory.epoch == 2)
    cluster.worker.restart()
    await check(cluster, tasks)


async def test_both_peers_killed_at_once(cluster: Cluster):
    tasks = await start(cluster)
    cluster.memory.kill()
    cluster.worker.restart()
    await cluster.until(lambda: not cluster.engine.readiness.ready)
    cluster.memory.restart()
    await check(cluster, tasks)


async def test_a_worker_that_comes_back_smaller_fails_only_what_does_not_fit(cluster: Cluster):
    small = make_request(range(4), max_tokens=10)
    big = cluster.engine.generate(make_request(range(20), max_tokens=40))
    reading = asyncio.create_task(read(cluster.engine.generate(small)))
    await anext(big)
    cluster.worker.num_blocks = 6
    cluster.worker.restart()
    with pytest.raises(RequestFailed, match="came back smaller"):
        await read(big)
    assert (await reading)[0] == alone(small)
    await cluster.idle()


async def test_a_frozen_worker_makes_the_engine_unready_until_it_thaws(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: not cluster.engine.readiness.ready)
    assert cluster.engine.readiness.reason.startswith("no token advanced for")
    cluster.worker.thaw.set()
    await check(cluster, tasks)
    assert cluster.engine.readiness.ready


async def test_an_idle_engine_notices_that_a_peer_is_gone(cluster: Cluster):
    cluster.memory.kill()
    await cluster.until(lambda: not cluster.engine.readiness.ready)
    cluster.memory.restart()
    await cluster.ready()


async def test_new_requests_are_turned_away_when_nothing_advanced_for_long():
    cluster = Cluster(config=EngineConfig(patience_s=0.02, min_backoff_s=0.001))
    await cluster.engine.start()
    await cluster.ready()
    cluster.worker.kill()
    cluster.engine.generate(make_request(range(3)))
    await asyncio.sleep(0.05)
    with pytest.raises(NotReady, match="the worker is dead"):
        cluster.engine.generate(make_request(range(3)))
    await cluster.engine.close()


async def test_a_refused_step_has_everything_recomputed_once(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.thaw.clear()
    await cluster.until(lambda: cluster.worker.num_in_hand == 2)
    cluster.worker.refuse_steps = 1
    cluster.worker.thaw.set()
    await check(cluster, tasks)
    assert cluster.worker.num_attached == 2


async def test_steps_refused_again_fail_the_requests_and_the_engine_serves_on(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.refuse_steps = 2
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, RequestFailed)
    await cluster.ready()
    await check(cluster, await start(cluster, 0))


async def test_only_the_sequences_whose_token_cannot_be_computed_fail(cluster: Cluster):
    tasks = await start(cluster)
    cluster.worker.cannot_compute = (2,)
    with pytest.raises(RequestFailed, match="not finite"):
        await tasks[1]
    others = await asyncio.gather(tasks[0], tasks[2])
    assert [text for text, _, _ in others] == [alone(REQUESTS[0]), alone(REQUESTS[2])]
    await cluster.idle()


async def test_a_fault_of_our_own_fails_the_requests_and_the_engine_serves_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    tasks = await start(cluster)
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "commit", lambda *_: 1 / 0)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, RequestFailed)
            assert "division by zero" in str(result)
    await cluster.ready()
    await check(cluster, await start(cluster, 0))


async def test_text_that_cannot_be_made_fails_only_its_request(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    decode = cluster.engine._outputs._decode
    cluster.engine._outputs._decode = lambda _: 1 / 0
    monkeypatch.setattr("scheduler.core.detokenizer._PROMPT_TAIL", -100)
    broken = cluster.engine.generate(make_request(range(3)))
    cluster.engine._outputs._decode = decode
    with pytest.raises(RequestFailed, match="cannot be made"):
        await read(broken)
    await check(cluster, await start(cluster, 0))
