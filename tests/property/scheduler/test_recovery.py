"""Whatever goes away in whatever moment of overlapping steps: every client reads what it reads alone."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.cluster import Cluster, alone, read
from doubles.rig import make_request
from scheduler.core.request import Request
from scheduler.core.shape import SchedulerConfig
from scheduler.engine import EngineConfig

FAULTS: dict[str, Callable[[Cluster], None]] = {
    "the kvmanager restarts": lambda cluster: (cluster.memory.kill(), cluster.memory.restart()),
    "the kvmanager loses its journal": lambda cluster: (
        cluster.memory.kill(journal_lost=True),
        cluster.memory.restart(),
    ),
    "the kvmanager loses an answer": lambda cluster: setattr(cluster.memory, "lose_answers", 1),
    "the worker restarts": lambda cluster: cluster.worker.restart(),
    "the worker loses an answer": lambda cluster: setattr(cluster.worker, "lose_answers", 1),
    "the worker freezes": lambda cluster: cluster.worker.thaw.clear(),
}


CONFIG = EngineConfig(scheduler=SchedulerConfig(16, 8), min_backoff_s=0.001, max_backoff_s=0.01)


@dataclass(frozen=True)
class Fault:
    """What happens when the worker has computed so many more steps, and how many turns of the loop later."""

    name: str
    num_steps: int
    num_turns: int


faults = st.builds(Fault, st.sampled_from(sorted(FAULTS)), st.integers(1, 6), st.integers(0, 12))
prompts = st.lists(st.integers(0, 5), min_size=1, max_size=9)
jobs = st.tuples(prompts, st.integers(8, 40))


async def play(requests: list[Request], events: list[Fault], *, overlaps: bool) -> list[str]:
    cluster = Cluster(config=replace(CONFIG, overlaps=overlaps))
    await cluster.engine.start()
    await cluster.ready()
    tasks = [asyncio.create_task(read(cluster.engine.generate(request))) for request in requests]
    for fault in events:
        goal = len(cluster.worker.steps) + fault.num_steps
        await cluster.until(lambda goal=goal: len(cluster.worker.steps) >= goal or all(map(asyncio.Task.done, tasks)))
        for _ in range(fault.num_turns):
            await asyncio.sleep(0)
        FAULTS[fault.name](cluster)
        if not cluster.worker.thaw.is_set():
            await asyncio.sleep(0.002)
            cluster.worker.thaw.set()
    texts = [text for text, _, _ in await asyncio.wait_for(asyncio.gather(*tasks), 20)]
    await cluster.until(lambda: is_idle(cluster))
    await cluster.engine.close()
    return texts


def is_idle(cluster: Cluster) -> bool:
    """Nobody holds anything, also after a fault that came last."""
    pool, scheduler = cluster.memory.pool, cluster.engine.scheduler
    is_connected = cluster.worker.is_open and cluster.memory.is_open
    return bool(is_connected and pool and pool.is_idle and scheduler and not scheduler.groups)


@settings(deadline=None, max_examples=60)
@given(st.lists(jobs, min_size=1, max_size=4), st.lists(faults, min_size=1, max_size=5), st.booleans())
def test_no_fault_costs_a_token_or_repeats_one(work, events, overlaps):
    requests = [make_request(prompt, max_tokens=max_tokens) for prompt, max_tokens in work]
    assert asyncio.run(play(requests, events, overlaps=overlaps)) == [alone(request) for request in requests]
