"""A request waits no longer than it may, and leaves nothing behind."""

import asyncio

import pytest

from doubles.cluster import Cluster, alone, read
from doubles.rig import make_request
from scheduler.core.order import SchedulingPolicy
from scheduler.core.shape import SchedulerConfig
from scheduler.engine import EngineConfig
from scheduler.errors import QueueTimeout


async def started(**config) -> Cluster:
    cluster = Cluster(config=EngineConfig(min_backoff_s=0.001, max_backoff_s=0.01, **config))
    await cluster.engine.start()
    await cluster.ready()
    return cluster


async def test_a_request_without_a_token_in_time_fails_alone():
    cluster = await started(scheduler=SchedulerConfig(16, 1), queue_timeout_s=0.05)
    cluster.worker.thaw.clear()
    streams = [cluster.engine.generate(make_request(range(5), max_tokens=3)) for _ in range(2)]
    for stream in streams:
        with pytest.raises(QueueTimeout, match=r"no token within 0\.05 s"):
            await read(stream)
    cluster.worker.thaw.set()
    await cluster.idle()
    request = make_request(range(7))
    assert (await read(cluster.engine.generate(request)))[0] == alone(request)
    await cluster.engine.close()


async def test_a_request_that_has_a_token_is_not_ended_by_the_deadline():
    cluster = await started(queue_timeout_s=0.05)
    request = make_request(range(5), max_tokens=8)
    stream = cluster.engine.generate(request)
    first = await anext(stream)
    cluster.worker.thaw.clear()
    await asyncio.sleep(0.1)
    cluster.worker.thaw.set()
    assert first.text + (await read(stream))[0] == alone(request)
    await cluster.engine.close()


async def test_an_urgent_request_is_served_before_those_that_run():
    cluster = await started(scheduler=SchedulerConfig(16, 2, policy=SchedulingPolicy.PRIORITY))
    routine = [make_request([i, *range(5)], max_tokens=20, priority=1) for i in range(3)]
    ended: list[str] = []

    async def finish(request) -> None:
        assert (await read(cluster.engine.generate(request)))[0] == alone(request)
        ended.append(request.request_id)

    tasks = [asyncio.create_task(finish(request)) for request in routine]
    await cluster.until(lambda: cluster.engine.scheduler.num_running == 2)
    urgent = make_request(range(5), max_tokens=4, priority=-1)
    await asyncio.gather(*tasks, finish(urgent))
    assert ended[0] == urgent.request_id
    assert cluster.engine.scheduler.num_preemptions == 1
    await cluster.idle()
    await cluster.engine.close()
