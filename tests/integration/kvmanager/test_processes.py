"""Real processes, a real Valkey, and everything that can be taken from under them."""

import asyncio
import contextlib
import signal
from time import monotonic

import grpc
import pytest

from doubles.managers import decode, enter
from doubles.valkey import ValkeyServer
from kvmanager.v1 import kvmanager_pb2 as pb


def open_pool(**changes: object) -> pb.OpenPool:
    fields = {"pool_id": "w", "epoch": 7, "block_size": 4, "num_device_blocks": 8, "num_host_blocks": 8}
    return pb.OpenPool(**fields | changes)


async def begin(process, *, num_steps: int = 4):
    """A stream on which a sequence runs; returns it with its last answer."""
    stream = process.stream()
    opened = await stream.ask(open_pool())
    assert not opened.restored
    answer = await stream.ask(enter(1))
    for step_id in range(2, num_steps + 1):
        answer = await stream.ask(decode(step_id))
    return stream, answer


async def test_a_pool_is_opened_and_plans_are_answered(process):
    _, answer = await begin(process)
    assert answer.step_id == 4
    assert answer.usage.num_used_device_blocks == 3
    assert list(answer.changes.appended_block_ids) == [2]


async def test_services_start_in_any_order(tmp_path, new_process):
    process = new_process("k")
    await process.start()
    await process.until_serving(serving=False)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await process.stream().ask(open_pool())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    valkey = ValkeyServer(tmp_path)
    valkey.start()
    try:
        await process.until_serving()
        await begin(process)
    finally:
        valkey.kill()


@pytest.mark.parametrize(
    ("message", "status", "words"),
    [
        (decode(9), grpc.StatusCode.FAILED_PRECONDITION, "step_id: 9 does not follow 4"),
        (decode(2), grpc.StatusCode.FAILED_PRECONDITION, "step_id: 2 does not follow 4"),
        (decode(5, sequence_id=3), grpc.StatusCode.FAILED_PRECONDITION, "sequence 3 has no table"),
        (pb.Plan(step_id=5, released=[7]), grpc.StatusCode.FAILED_PRECONDITION, "sequence 7 is unknown"),
        (pb.Plan(step_id=5, running=pb.RunningGroups(group_ids=[1])), grpc.StatusCode.INVALID_ARGUMENT, "running"),
    ],
)
async def test_a_broken_promise_ends_the_stream_and_another_goes_on(process, message, status, words):
    stream, _ = await begin(process)
    with pytest.raises(grpc.aio.AioRpcError, match=words) as caught:
        await stream.ask(message)
    assert caught.value.code() is status
    again = process.stream()
    assert (await again.ask(open_pool())).last_step_id == 4
    assert (await again.ask(decode(5))).step_id == 5


async def test_a_plan_before_the_pool_is_open_is_refused(process):
    with pytest.raises(grpc.aio.AioRpcError, match="must open the pool"):
        await process.stream().ask(decode(1))


async def test_a_request_without_content_is_refused(process):
    stream = process.stream()
    await stream._call.write(pb.PoolRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream._call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_repeated_step_gets_the_stored_answer(process):
    stream, answer = await begin(process)
    assert await stream.ask(decode(4)) == answer
    again = process.stream()
    await again.ask(open_pool())
    assert await again.ask(decode(4)) == answer


async def test_an_older_stream_is_fenced_off(process):
    older, _ = await begin(process)
    newer = process.stream()
    await newer.ask(open_pool())
    with pytest.raises(grpc.aio.AioRpcError, match="another stream"):
        await older.ask(decode(5))
    await newer.ask(decode(5))


async def test_a_killed_manager_comes_back_as_it_was_and_running_sequences_go_on(process):
    _, answer = await begin(process)
    await process.end(signal.SIGKILL)
    await process.start()
    stream = process.stream()
    opened = await stream.ask(open_pool())
    assert opened.restored
    assert opened.last_step_id == 4
    assert await stream.ask(decode(4)) == answer
    assert (await stream.ask(decode(5))).step_id == 5


async def test_it_can_be_killed_at_any_instant(process):
    """Steps are in flight when it dies; each is sent again until it is answered, and none is applied twice."""
    stream, _ = await begin(process)

    async def kill_now_and_then() -> None:
        for pause_s in (0.05, 0.5, 0.7, 0.9):
            await asyncio.sleep(pause_s)
            await process.end(signal.SIGKILL)
            await process.start()

    killing = asyncio.create_task(kill_now_and_then())
    step_id = 4
    while not killing.done():
        step_id += 1
        ends = step_id % 2 == 1
        message = pb.Plan(step_id=step_id, released=[1]) if ends else enter(step_id, 30)
        answer = None
        while answer is None:
            try:
                answer = await stream.ask(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                stream = process.stream()
                with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    assert (await stream.ask(open_pool())).last_step_id in (step_id - 1, step_id)
        assert answer.step_id == step_id
        assert answer.usage.num_used_device_blocks == (0 if ends else 8)
    assert step_id > 10


async def test_a_new_epoch_forgets_every_block(process):
    await begin(process)
    stream = process.stream()
    opened = await stream.ask(open_pool(epoch=8))
    assert not opened.restored
    assert opened.last_step_id == 0
    assert (await stream.ask(enter(1))).usage.num_used_device_blocks == 2


async def test_a_new_scheduler_frees_the_sequences_of_the_old_one(process):
    await begin(process)
    stream = process.stream()
    opened = await stream.ask(open_pool(forget_sequences=True))
    assert opened.restored
    assert (await stream.ask(enter(5))).usage.num_used_device_blocks == 2


async def test_a_flushed_redis_gets_a_snapshot_and_a_later_restart_knows_everything(process, valkey):
    stream, _ = await begin(process)
    valkey.client.flushall()
    await stream.ask(decode(5))
    last = await stream.ask(decode(6))
    await process.end(signal.SIGKILL)
    await process.start()
    stream = process.stream()
    opened = await stream.ask(open_pool())
    assert opened.restored
    assert opened.last_step_id == 6
    assert await stream.ask(decode(6)) == last


@pytest.mark.parametrize("append_only", [True, False])
async def test_a_redis_that_crashed_is_waited_for(tmp_path, new_process, append_only):
    valkey = ValkeyServer(tmp_path, append_only=append_only)
    valkey.start()
    process = new_process("k")
    await process.start()
    try:
        stream, _ = await begin(process)
        valkey.kill()
        await process.until_serving(serving=False)
        step = asyncio.create_task(stream.ask(decode(5)))
        await asyncio.sleep(0.3)
        assert not step.done()
        valkey.start()
        assert (await step).step_id == 5
        await process.until_serving()
        assert (await stream.ask(decode(6))).step_id == 6
    finally:
        valkey.kill()


async def test_a_frozen_redis_delays_the_answer_and_is_reported(process, valkey):
    stream, _ = await begin(process)
    valkey.send(signal.SIGSTOP)
    step = asyncio.create_task(stream.ask(decode(5)))
    try:
        await process.until_serving(serving=False)
        assert not step.done()
    finally:
        valkey.send(signal.SIGCONT)
    assert (await step).step_id == 5
    await process.until_serving()


async def test_waiting_for_redis_is_bounded(tmp_path, valkey, new_process):
    process = new_process("k")
    await process.start("--journal-patience", "0.5")
    stream, _ = await begin(process)
    valkey.kill()
    began = monotonic()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.ask(decode(5))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert monotonic() - began < 5
    valkey.start()
    again = process.stream()
    assert (await again.ask(open_pool())).last_step_id == 5
    assert (await again.ask(decode(5))).step_id == 5


async def test_a_restart_of_redis_and_manager_without_persistence_is_a_new_pool(tmp_path, new_process):
    valkey = ValkeyServer(tmp_path, append_only=False)
    valkey.start()
    process = new_process("k")
    await process.start()
    try:
        await begin(process)
        valkey.kill()
        await process.end(signal.SIGKILL)
        valkey.start()
        await process.start()
        opened = await process.stream().ask(open_pool())
        assert not opened.restored
    finally:
        valkey.kill()


async def test_a_standby_takes_over_within_five_seconds(process, new_process):
    standby = new_process("s")
    await standby.start("--standby")
    _, answer = await begin(process)
    with pytest.raises(grpc.aio.AioRpcError, match="OWNED") as caught:
        await standby.stream().ask(open_pool())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    await process.end(signal.SIGKILL)
    began = monotonic()
    while True:
        stream = standby.stream()
        try:
            opened = await stream.ask(open_pool())
            break
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)
    assert monotonic() - began < 5
    assert opened.last_step_id == 4
    assert await stream.ask(decode(4)) == answer
    await stream.ask(decode(5))


async def test_an_owner_that_was_frozen_too_long_can_write_no_more(process, new_process):
    stream, _ = await begin(process)
    process.send(signal.SIGSTOP)
    other = new_process("s")
    await other.start()
    taken = None
    async with asyncio.timeout(10):
        while taken is None:
            try:
                taken = other.stream()
                await taken.ask(open_pool())
            except grpc.aio.AioRpcError:
                taken = None
                await asyncio.sleep(0.1)
    await taken.ask(decode(5))
    process.send(signal.SIGCONT)
    with pytest.raises(grpc.aio.AioRpcError, match="another kvmanager"):
        await stream.ask(decode(5))
    assert (await taken.ask(decode(6))).step_id == 6


async def test_an_ordered_end_exits_with_zero_and_leaves_the_lease(process, valkey):
    await begin(process)
    assert valkey.client.get("octavo:w:owner").startswith(b"k#")
    assert await process.end(signal.SIGTERM) == 0
    assert valkey.client.get("octavo:w:owner") is None


async def test_pools_are_apart(process):
    first, second = process.stream(), process.stream()
    await first.ask(open_pool(pool_id="first"))
    await second.ask(open_pool(pool_id="second"))
    await first.ask(enter(1))
    assert (await second.ask(enter(1))).step_id == 1
    await first.ask(decode(2))
