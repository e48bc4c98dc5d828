"""The engine with a real model, a real kvmanager and a real Valkey: memory and faults never change the answer."""

import asyncio
import signal

from doubles.cluster import read
from doubles.rig import make_request
from scheduler.core.request import Request, SamplingParams

GREEDY = SamplingParams(temperature=0)


def make_requests() -> list[Request]:
    """Six prompts of different lengths; together they need 17 blocks of 16, and the pool has 8."""
    requests = [make_request([504, 3575, 282 + i, 4649, 314, *range(100, 110 + 3 * i)], 16) for i in range(6)]
    return [Request(r.request_id, r.prompt_token_ids, r.stop, GREEDY) for r in requests]


async def test_greedy_tokens_are_those_of_each_request_alone_whatever_is_killed(real_services):
    engine = real_services.engine
    alone = [(await read(engine.generate(request)))[1] for request in make_requests()]

    streams = [asyncio.create_task(read(engine.generate(request))) for request in make_requests()]
    assert [token_ids for _, token_ids, _ in await asyncio.gather(*streams)] == alone
    assert engine.scheduler.num_preemptions > 0

    for name in ("kvmanager", "gpuworker"):
        streams = [asyncio.create_task(read(engine.generate(request))) for request in make_requests()]
        num_steps = engine.scheduler.num_steps
        while engine.scheduler.num_steps < num_steps + 8:  # noqa: ASYNC110 (a counter has no event)
            await asyncio.sleep(0.005)
        await real_services.kill(name)
        await real_services.start(name)
        assert [token_ids for _, token_ids, _ in await asyncio.gather(*streams)] == alone
    assert engine.scheduler.groups == ()
    engine.scheduler.check()

    await engine.close()
    assert await real_services.kill("gpuworker", signal.SIGTERM) == 0
    assert await real_services.kill("kvmanager", signal.SIGTERM) == 0
