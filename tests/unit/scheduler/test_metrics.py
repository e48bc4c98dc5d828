"""What the scheduler counts and times, on the page that Prometheus reads."""

from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from doubles.administrator import POOL, AdministratorDouble
from doubles.cluster import Cluster, read
from doubles.rig import make_request
from scheduler.core.steps import BlockChanges, Grant, Plan, PoolUsage, Step, StepResult
from scheduler.errors import NotReady
from scheduler.inspection import LiveRequest, LiveSequence, RequestList
from scheduler.metrics import Exposition, Instruments, MeasuredGenerator, MeasuredMemory, MeasuredWorker
from scheduler.ports import WorkerDescription


class FixedWorker:
    """Computes each step in 20 ms after a wait of 3 ms."""

    async def attach(self, *, forget_sequences: bool) -> WorkerDescription:
        phases = ("attention", "waiting")
        return WorkerDescription("w", 1, 0, 16, 8, 0, 1024, 64, 100, "m", b"", "float32", "cpu", phases)

    async def execute(self, step: Step) -> StepResult:
        return StepResult(step.step_id, compute_s=0.02, idle_s=0.003, phase_s=(0.015, 0.005))


class FixedMemory:
    """Journals each grant in 2 ms."""

    async def grant(self, plan: Plan) -> Grant:
        return Grant(plan.step_id, BlockChanges(None), PoolUsage(0, 0, 0), journal_s=0.002)


class Clock:
    """Each look at it takes a second."""

    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def value(instruments: Instruments, name: str, **labels: str) -> float | None:
    return instruments.registry.get_sample_value(name, labels)


async def samples(exposition: Exposition) -> dict[tuple[str, ...], float]:
    """By name and the values of labels in order of the labels' names."""
    page = (await exposition.page()).decode()
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.fixture
def instruments() -> Instruments:
    return Instruments()


def step(step_id: int, *sequence_ids: int) -> Step:
    return Step(step_id, 1, None, sequence_ids=sequence_ids, token_ids=(1,) * len(sequence_ids))


async def test_a_gap_counts_between_two_steps_of_one_sequence_and_not_where_there_was_no_work(instruments):
    worker = MeasuredWorker(FixedWorker(), instruments, Clock())
    for each in (step(1, 7, 8), step(2, 8), step(3), step(4, 9), step(5, 9)):
        await worker.execute(each)
    assert value(instruments, "octavo_step_gap_seconds_count") == 2
    assert value(instruments, "octavo_step_gap_seconds_sum") == pytest.approx(0.006)
    assert value(instruments, "octavo_step_seconds_count") == 4
    assert value(instruments, "octavo_computed_tokens_total") == 5


async def test_the_phases_of_a_step_are_summed_by_the_names_that_the_worker_has_for_them(instruments):
    worker = MeasuredWorker(FixedWorker(), instruments, Clock())
    await worker.attach(forget_sequences=True)
    for step_id in (1, 2):
        await worker.execute(step(step_id, 7))
    assert value(instruments, "octavo_step_phase_seconds_total", phase="attention") == pytest.approx(0.03)
    assert value(instruments, "octavo_step_phase_seconds_total", phase="waiting") == pytest.approx(0.01)


async def test_what_a_step_s_messages_take_is_counted_from_the_answer_before_if_it_was_queued(instruments):
    clock = Clock()
    worker = MeasuredWorker(FixedWorker(), instruments, clock)
    await worker.execute(step(1, 7))
    alone_s = value(instruments, "octavo_step_exchange_seconds_sum")
    assert alone_s == pytest.approx(1.0 - 0.02)  # sent at one second, answered at the next
    clock.now_s, worker._last_answer_s = 2.0, 3.5  # sent at 3 s, when the step before had half a second to go
    await worker.execute(step(2, 7))
    assert value(instruments, "octavo_step_exchange_seconds_sum") == pytest.approx(alone_s + 0.5 - 0.02)


async def test_a_grant_is_timed_and_its_journal_entry_besides(instruments):
    memory = MeasuredMemory(FixedMemory(), instruments, Clock())
    await memory.grant(Plan(1))
    assert value(instruments, "octavo_grant_seconds_sum") == pytest.approx(1.0)
    assert value(instruments, "octavo_journal_seconds_sum") == pytest.approx(0.002)


async def test_tokens_are_counted_and_requests_timed_from_acceptance_to_end(instruments):
    cluster = Cluster()
    await cluster.engine.start()
    await cluster.ready()
    generator = MeasuredGenerator(cluster.engine, instruments, Clock())
    await read(generator.generate(make_request(range(6), max_tokens=3)))
    assert value(instruments, "octavo_prompt_tokens_total") == 6
    assert value(instruments, "octavo_output_tokens_total") == 3
    assert value(instruments, "octavo_ended_choices_total", reason="length") == 1
    assert value(instruments, "octavo_time_to_first_token_seconds_sum") == 1.0
    assert value(instruments, "octavo_inter_token_seconds_sum") == 2.0
    assert value(instruments, "octavo_request_seconds_sum") == 4.0
    await cluster.engine.close()


async def test_an_abandoned_request_is_timed_once(instruments):
    cluster = Cluster()
    await cluster.engine.start()
    await cluster.ready()
    stream = MeasuredGenerator(cluster.engine, instruments, Clock()).generate(make_request(range(6), max_tokens=30))
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert value(instruments, "octavo_request_seconds_count") == 1
    await cluster.engine.close()


async def test_the_page_shows_requests_by_state_and_pools_by_block(instruments):
    admin = AdministratorDouble()
    states = (("running", "waiting"), ("running",), ("waiting",), ("swapped", "swapped"))
    admin.live_requests = lambda: RequestList(
        [
            LiveRequest(f"r{i}", i, 0, 0, [LiveSequence(j, j, status, 1, 0, 0) for j, status in enumerate(statuses)])
            for i, statuses in enumerate(states)
        ]
    )
    page = await samples(Exposition(instruments, admin))
    assert [page["octavo_requests", state] for state in ("running", "waiting", "swapped")] == [2, 1, 1]
    blocks = [page["octavo_pool_blocks", "w0", state, "device"] for state in ("used", "cached", "free")]
    assert blocks == [3, 2, 3]
    assert sum(blocks) == POOL.num_device_blocks
    assert page["octavo_preemptions_total", "recompute", "w0"] == 1
    assert page["octavo_preemptions_total", "swap", "w0"] == 2
    assert page["octavo_prefix_hit_tokens_total", "w0"] == 20


async def test_without_the_kvmanager_the_page_is_without_pools(instruments):
    admin = AdministratorDouble()
    admin.pools.error = NotReady("the kvmanager is dead")
    page = await samples(Exposition(instruments, admin))
    assert ("octavo_requests", "running") in page
    assert not [key for key in page if key[0].startswith("octavo_pool")]


async def test_each_page_shows_pools_as_they_are_now(instruments):
    admin = AdministratorDouble()
    exposition = Exposition(instruments, admin)
    await exposition.page()

    async def pools():
        return type("List", (), {"pools": [replace(POOL, num_used_device_blocks=5, num_cached_device_blocks=0)]})

    admin.pools.pools = pools
    assert (await samples(exposition))["octavo_pool_blocks", "w0", "used", "device"] == 5
