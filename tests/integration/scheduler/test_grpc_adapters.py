"""The gRPC adapters against scripted services on a real socket."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from gpuworker.v1 import gpuworker_pb2 as worker_pb
from gpuworker.v1.gpuworker_pb2_grpc import GPUWorkerServicer, add_GPUWorkerServicer_to_server
from kvmanager.v1 import kvmanager_pb2 as memory_pb
from kvmanager.v1.kvmanager_pb2_grpc import KVManagerServicer, add_KVManagerServicer_to_server
from scheduler.adapters.grpc_memory import GrpcMemory
from scheduler.adapters.grpc_worker import GrpcWorker, step_to_wire
from scheduler.core.request import GroupId, SamplingParams, SequenceId
from scheduler.core.steps import EnteringGroups, NewSequence, Plan, Preemption, RunningGroups, Step
from scheduler.errors import MemoryUnavailable, StepRefused, WorkerUnavailable

CHANGES = memory_pb.BlockChanges(appended_sequence_ids=[5], appended_num_blocks=[2], appended_block_ids=[7, 8])
DESCRIPTION = worker_pb.WorkerDescription(worker_id="w0", epoch=3, last_step_id=2, block_size=16, num_device_blocks=9)
GRANT = memory_pb.Grant(
    step_id=4,
    preempted_group_ids=[9],
    preempted_modes=[memory_pb.PREEMPTION_RECOMPUTE],
    admitted_group_ids=[5],
    admitted_sequence_ids=[5],
    num_present_tokens=[16],
    num_new_slots=[3],
    changes=CHANGES,
    usage=memory_pb.PoolUsage(num_used_device_blocks=2, num_cached_device_blocks=1),
)
PLAN = Plan(
    step_id=4,
    sealed_sequence_ids=[SequenceId(1)],
    sealed_block_indexes=[0],
    sealed_hashes=b"h" * 32,
    forks=[(SequenceId(1), SequenceId(2))],
    released=[SequenceId(3)],
    running=RunningGroups([GroupId(9)], [1], [Preemption.SWAP], [SequenceId(9)], [1]),
    entering=EnteringGroups(8, [GroupId(5)], [1], [SequenceId(5)], [19], [b"p" * 32]),
)
STEP = Step(
    step_id=4,
    epoch=3,
    changes=CHANGES,
    new_sequences=[NewSequence(SequenceId(5), SamplingParams(0.5, 0.25, 3, 11), 1)],
    sequence_ids=[SequenceId(5)],
    num_tokens=[3],
    positions=[16],
    samples=[True],
    token_ids=[1, 2, 3],
)


class Script(KVManagerServicer, GPUWorkerServicer):
    """Answers requests with what ``answer`` says; ``None`` freezes."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.requests: list[object] = []

    async def _talk(self, requests: AsyncIterator, context: grpc.aio.ServicerContext) -> AsyncIterator:
        async for request in requests:
            self.requests.append(request)
            answer = self.answers.pop(0)
            if answer is None:
                await asyncio.Event().wait()
            if isinstance(answer, grpc.StatusCode):
                await context.abort(answer, "as scripted")
            if answer == "end":
                return
            yield answer

    Arbitrate = Run = _talk  # type: ignore[assignment]


@pytest.fixture
async def script(tmp_path: Path) -> AsyncIterator[tuple[Script, str, Callable]]:
    script, address = Script(), f"unix:{tmp_path}/s.sock"

    async def serve() -> grpc.aio.Server:
        server = grpc.aio.server()
        add_KVManagerServicer_to_server(script, server)
        add_GPUWorkerServicer_to_server(script, server)
        server.add_insecure_port(address)
        await server.start()
        return server

    server = await serve()
    yield script, address, server
    await server.stop(0)


def described() -> worker_pb.WorkerResponse:
    return worker_pb.WorkerResponse(description=DESCRIPTION)


def opened() -> memory_pb.PoolResponse:
    return memory_pb.PoolResponse(opened=memory_pb.PoolOpened(epoch=3, last_step_id=3, restored=True))


async def test_a_pool_is_opened_and_a_plan_granted_column_by_column(script):
    service, address, _ = script
    service.answers = [described(), opened(), memory_pb.PoolResponse(grant=GRANT)]
    worker, memory = GrpcWorker(address), GrpcMemory(address)
    pool = await memory_open(memory, worker)
    assert (pool.epoch, pool.last_step_id, pool.restored) == (3, 3, True)
    grant = await memory.grant(PLAN)
    assert (grant.preempted_group_ids, grant.preempted_modes) == ([9], [Preemption.RECOMPUTE])
    assert (grant.admitted_group_ids, grant.num_present_tokens, grant.num_new_slots) == ([5], [16], [3])
    assert grant.changes == CHANGES
    plan = service.requests[-1].plan
    assert plan.sealed.hashes == b"h" * 32
    assert (plan.forks[0].parent_id, plan.forks[0].child_id, plan.released) == (1, 2, [3])
    assert (plan.running.preemptions, plan.running.num_new_slots) == ([memory_pb.PREEMPTION_SWAP], [1])
    assert (plan.entering.token_budget, plan.entering.num_tokens, plan.entering.prefix_hashes) == (8, [19], [b"p" * 32])
    await worker.close()
    await memory.close()


async def test_a_step_is_executed_and_the_block_changes_pass_through_unread(script):
    service, address, _ = script
    result = worker_pb.StepResult(step_id=4, sequence_ids=[5], token_ids=[42], logprobs=[-1.5], compute_seconds=0.5)
    service.answers = [described(), worker_pb.WorkerResponse(result=result)]
    worker = GrpcWorker(address)
    description = await worker.attach(forget_sequences=True)
    assert (description.worker_id, description.epoch, description.num_device_blocks) == ("w0", 3, 9)
    answer = await worker.execute(STEP)
    assert (answer.step_id, answer.sequence_ids, answer.token_ids, answer.compute_s) == (4, [5], [42], 0.5)
    assert answer.logprobs == [-1.5]
    step = service.requests[-1].step
    assert service.requests[0].attach.forget_sequences
    assert step.changes == CHANGES
    sampling = step.new_sequences[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.25, 3)
    assert (sampling.seed, sampling.choice_index) == (11, 1)
    await worker.close()


@pytest.mark.parametrize("top_p", [5e-324, 1e-60, 1e-40])
def test_a_top_p_below_what_the_wire_can_hold_stays_above_0(top_p):
    """A worker refuses 0, and with it the whole step."""
    new = replace(STEP.new_sequences[0], sampling=SamplingParams(top_p=top_p))
    told = step_to_wire(replace(STEP, new_sequences=[new])).new_sequences[0].sampling.top_p
    assert 0 < told < 1e-30


async def test_steps_that_are_asked_for_at_once_are_answered_in_order(script):
    service, address, _ = script
    results = [worker_pb.WorkerResponse(result=worker_pb.StepResult(step_id=step_id)) for step_id in (4, 5, 6)]
    service.answers = [described(), *results]
    worker = GrpcWorker(address)
    await worker.attach(forget_sequences=False)
    answers = await asyncio.gather(*(worker.execute(replace(STEP, step_id=step_id)) for step_id in (4, 5, 6)))
    assert [answer.step_id for answer in answers] == [4, 5, 6]
    assert [request.step.step_id for request in service.requests[1:]] == [4, 5, 6]
    await worker.close()


async def test_a_stream_that_breaks_fails_every_step_that_waits_for_it(script):
    service, address, _ = script
    service.answers = [described(), grpc.StatusCode.UNAVAILABLE, described()]
    worker = GrpcWorker(address)
    await worker.attach(forget_sequences=False)
    steps = [asyncio.create_task(worker.execute(replace(STEP, step_id=step_id))) for step_id in (4, 5)]
    for error in await asyncio.gather(*steps, return_exceptions=True):
        assert isinstance(error, WorkerUnavailable)
    assert not worker.is_open
    await worker.attach(forget_sequences=False)
    await worker.close()


async def test_a_step_that_is_given_up_fails_the_others_on_its_stream_but_cancels_nobody(script):
    service, address, _ = script
    service.answers = [described(), None]
    worker = GrpcWorker(address)
    await worker.attach(forget_sequences=False)
    waiting, given_up = (asyncio.create_task(worker.execute(replace(STEP, step_id=step_id))) for step_id in (4, 5))
    await asyncio.sleep(0.05)
    given_up.cancel()
    with pytest.raises(WorkerUnavailable):
        await waiting
    assert given_up.cancelled()
    await worker.close()


async def memory_open(memory: GrpcMemory, worker: GrpcWorker):
    return await memory.open(await worker.attach(forget_sequences=False), forget_sequences=False)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (worker_pb.StepFailure(step_id=4, message="unknown sequence"), StepRefused),
        (worker_pb.StepFailure(step_id=4, message="old epoch", epoch_is_stale=True), WorkerUnavailable),
    ],
)
async def test_a_failed_step_says_whether_attaching_again_helps(script, failure, error):
    service, address, _ = script
    service.answers = [described(), worker_pb.WorkerResponse(failure=failure)]
    worker = GrpcWorker(address)
    await worker.attach(forget_sequences=False)
    with pytest.raises(error, match=failure.message):
        await worker.execute(STEP)
    await worker.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (grpc.StatusCode.UNAVAILABLE, MemoryUnavailable),
        (grpc.StatusCode.INTERNAL, MemoryUnavailable),
        ("end", MemoryUnavailable),
        (None, MemoryUnavailable),
        (grpc.StatusCode.FAILED_PRECONDITION, StepRefused),
        (grpc.StatusCode.INVALID_ARGUMENT, StepRefused),
    ],
)
async def test_every_way_of_not_answering_is_told_and_the_stream_opens_again(script, answer, error):
    service, address, _ = script
    service.answers = [described(), opened(), answer, opened(), memory_pb.PoolResponse(grant=GRANT)]
    worker, memory = GrpcWorker(address), GrpcMemory(address, grant_timeout_s=0.2)
    description = await worker.attach(forget_sequences=False)
    await memory.open(description, forget_sequences=False)
    with pytest.raises(error):
        await memory.grant(PLAN)
    assert not memory.is_open
    with pytest.raises(MemoryUnavailable, match="is not open"):
        await memory.grant(PLAN)
    await memory.open(description, forget_sequences=False)
    assert (await memory.grant(PLAN)).step_id == 4
    await worker.close()
    await memory.close()


async def test_an_idle_stream_notices_that_the_service_died(script):
    service, address, server = script
    service.answers = [described()]
    worker = GrpcWorker(address)
    await worker.attach(forget_sequences=False)
    assert worker.is_open
    await server.stop(0)
    async with asyncio.timeout(5):
        while worker.is_open:  # noqa: ASYNC110 (the peer's death has no event)
            await asyncio.sleep(0.01)
    with pytest.raises(WorkerUnavailable):
        await worker.attach(forget_sequences=False)
    await worker.close()


async def test_a_service_that_cannot_accept_us_yet_is_unavailable(script):
    service, address, _ = script
    service.answers = [grpc.StatusCode.FAILED_PRECONDITION]
    worker = GrpcWorker(address)
    with pytest.raises(WorkerUnavailable, match="failed_precondition: as scripted"):
        await worker.attach(forget_sequences=False)
    await worker.close()
