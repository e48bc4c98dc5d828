"""The engine with a real kvmanager and Valkey, each killed at some moment."""

import asyncio

from doubles.cluster import alone, read, read_choices
from doubles.rig import make_request

REQUESTS = [make_request([i, *range(5)], max_tokens=40 + i) for i in range(6)]


async def start(services) -> list[asyncio.Task]:
    """Six streams, more than the pool holds, some steps on their way."""
    tasks = [asyncio.create_task(read(services.engine.generate(request))) for request in REQUESTS]
    num_steps = services.engine.scheduler.num_steps
    async with asyncio.timeout(10):
        while services.engine.scheduler.num_steps < num_steps + 10:  # noqa: ASYNC110 (a counter has no event)
            await asyncio.sleep(0)
    return tasks


async def check(services, tasks: list[asyncio.Task]) -> None:
    async with asyncio.timeout(30):
        results = await asyncio.gather(*tasks)
        assert [text for text, _, _ in results] == [alone(request) for request in REQUESTS]
        while services.worker.model.tables:  # noqa: ASYNC110 (the idle invariant has no event)
            await asyncio.sleep(0.01)
    services.engine.scheduler.check()
    assert services.engine.scheduler.groups == ()


async def test_streams_share_a_small_pool_and_preempt(services):
    await check(services, await start(services))
    assert services.engine.scheduler.num_preemptions > 0


async def test_a_killed_kvmanager_comes_back_from_its_journal_and_nothing_but_preemptions_is_recomputed(services):
    tasks = await start(services)
    epoch = services.engine.scheduler.memory
    await services.kill("kvmanager")
    await services.start("kvmanager")
    await check(services, tasks)
    assert services.engine.scheduler.memory is epoch


async def test_choices_share_give_way_by_swapping_and_outlive_a_killed_kvmanager(services):
    requests = [make_request([i, *range(5)], max_tokens=30, num_choices=3) for i in range(4)]
    tasks = [asyncio.create_task(read_choices(services.engine.generate(request))) for request in requests]
    scheduler = services.engine.scheduler
    for killed_after in (10, 30):
        async with asyncio.timeout(10):
            while scheduler.num_steps < killed_after:  # noqa: ASYNC110 (a counter has no event)
                await asyncio.sleep(0)
        await services.kill("kvmanager")
        await services.start("kvmanager")
    async with asyncio.timeout(30):
        results = await asyncio.gather(*tasks)
    assert results == [[alone(request, choice) for choice in range(3)] for request in requests]
    assert services.engine.scheduler is scheduler
    assert scheduler.num_swaps > 0


async def test_a_kvmanager_and_its_journal_lost_has_everything_recomputed(services):
    tasks = await start(services)
    await services.kill("kvmanager")
    await services.kill("redis")
    for path in services.folder.glob("appendonlydir/*"):
        path.unlink()
    await services.start("redis")
    await services.start("kvmanager")
    await check(services, tasks)


async def test_a_worker_that_lost_its_memory_recomputes_without_gap_or_repeat(services):
    tasks = await start(services)
    await services.stop_worker()
    services.worker.lose_memory()
    await services.start_worker()
    await check(services, tasks)
    assert services.engine.scheduler.memory.epoch == services.worker.epoch


async def test_a_new_scheduler_takes_over_the_pool_and_keeps_its_prefix_cache(services):
    tasks = await start(services)
    for task in tasks:
        task.cancel()
    await services.engine.close()
    services.engine = services.new_engine()
    await services.engine.start()
    await services.ready()
    text, _, last = await read(services.engine.generate(REQUESTS[0]))
    assert text == alone(REQUESTS[0])
    assert last.num_cached_tokens == 4
