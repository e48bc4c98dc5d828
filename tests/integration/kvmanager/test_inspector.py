"""The Inspector over real gRPC, on pools whose journals are in a real Valkey."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import grpc
import pytest

from doubles.managers import OPENING
from doubles.memory_rig import chain
from doubles.valkey import ValkeyServer
from kvmanager.adapters.protobuf import plan_of
from kvmanager.adapters.redis_journal import RedisJournalStore
from kvmanager.adapters.state_codec import StateCodec, plan_entry
from kvmanager.core.plan import Grant
from kvmanager.core.pool_state import PoolStateSnapshot
from kvmanager.inspection_servicer import InspectorServicer
from kvmanager.inspector import Inspector
from kvmanager.pool import JournalPolicy
from kvmanager.pools import Pools
from kvmanager.v1 import inspection_pb2 as pb
from kvmanager.v1 import kvmanager_pb2
from kvmanager.v1.inspection_pb2_grpc import InspectorStub, add_InspectorServicer_to_server

HEAD, TAIL = chain("a", "b")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory) -> Iterator[ValkeyServer]:
    server = ValkeyServer(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.kill()


class Served:
    """One kvmanager; ``restart`` is what a crash and a new start do."""

    def __init__(self, valkey: ValkeyServer, folder: Path) -> None:
        self.valkey = valkey
        self.address = f"unix:{folder}/m.sock"
        self.channel = grpc.aio.insecure_channel(self.address)
        self.stub = InspectorStub(self.channel)
        self.step_id = 0

    async def start(self, snapshot_interval: int = 1000) -> None:
        self.store = RedisJournalStore(self.valkey.url, instance="a", lease_s=60)
        self.pools = Pools(self.store, StateCodec(), JournalPolicy(1.0, snapshot_interval))
        self.server = grpc.aio.server()
        inspector = Inspector(self.pools, "a", pin_budget=0.25)
        add_InspectorServicer_to_server(InspectorServicer(inspector), self.server)
        self.server.add_insecure_port(self.address)
        await self.server.start()
        self.expiry = asyncio.create_task(inspector.expire_pins())
        self.pool, self.session, _ = await self.pools.open("w", OPENING)

    async def crash(self) -> None:
        self.expiry.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.expiry
        await self.server.stop(0)
        self.pool._journal._connection.close()
        await self.store.close()

    async def restart(self, **settings: int) -> None:
        await self.crash()
        await self.start(**settings)

    async def step(self, **fields: object) -> Grant:
        self.step_id += 1
        message = kvmanager_pb2.Plan(step_id=self.step_id, **fields)
        return await self.pool.grant(self.session, plan_of(message), partial(plan_entry, message))

    async def prompt(self, sequence_id: int, num_tokens: int, hashes: list[bytes] | None = None) -> Grant:
        entering = kvmanager_pb2.EnteringGroups(
            token_budget=1000,
            group_ids=[sequence_id],
            num_sequences=[1],
            sequence_ids=[sequence_id],
            num_tokens=[num_tokens],
            prefix_hashes=[b"".join(hashes or [])],
        )
        return await self.step(entering=entering)

    async def seal(self, sequence_id: int, *hashes: bytes) -> None:
        indexes = range(len(hashes))
        sealed = kvmanager_pb2.SealedBlocks(
            sequence_ids=[sequence_id] * len(hashes), block_indexes=indexes, hashes=b"".join(hashes)
        )
        await self.step(sealed=sealed)

    async def cache_a_chain(self) -> None:
        """Two blocks are cached, and nobody holds them."""
        await self.prompt(1, 8, [HEAD, TAIL])
        await self.seal(1, HEAD, TAIL)
        await self.step(released=[1])

    @property
    def state(self) -> PoolStateSnapshot:
        return self.pool.replica.state.snapshot()


@pytest.fixture
async def served(valkey, tmp_path) -> AsyncIterator[Served]:
    valkey.client.flushall()
    served = Served(valkey, tmp_path)
    await served.start()
    yield served
    await served.channel.close()
    await served.crash()


async def refused(call) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_pool_is_told_in_numbers(served):
    await served.cache_a_chain()
    await served.prompt(2, 9, [HEAD, TAIL])
    answer = await served.stub.ListPools(pb.ListPoolsRequest())
    assert answer.instance == "a"
    (pool,) = answer.pools
    assert (pool.pool_id, pool.epoch, pool.last_step_id) == ("w", 7, 4)
    assert (pool.num_used_device_blocks, pool.num_cached_device_blocks) == (3, 0)
    assert (pool.counters.num_steps, pool.counters.num_prompt_tokens, pool.counters.num_hit_tokens) == (4, 17, 8)
    assert (pool.pin_budget_blocks, pool.journal_position) == (2, 5)


async def test_counters_survive_a_restart_without_being_doubled(served):
    await served.cache_a_chain()
    before = (await served.stub.ListPools(pb.ListPoolsRequest())).pools[0].counters
    await served.restart()
    assert (await served.stub.ListPools(pb.ListPoolsRequest())).pools[0].counters == before


async def test_every_question_leaves_the_pool_byte_for_byte_as_it_was(served):
    await served.cache_a_chain()
    await served.prompt(2, 9, [HEAD, TAIL])
    before, stub = served.state, served.stub
    codec = StateCodec()
    await stub.GetMap(pb.GetMapRequest(pool_id="w"))
    for state in pb.BlockState.values():
        for tier in (pb.TIER_DEVICE, pb.TIER_HOST):
            await stub.ListBlocks(pb.ListBlocksRequest(pool_id="w", state=state, tier=tier))
    await stub.GetSequence(pb.GetSequenceRequest(pool_id="w", sequence_id=2))
    await stub.ListTables(pb.ListTablesRequest(pool_id="w"))
    await stub.ListSharing(pb.ListSharingRequest(pool_id="w"))
    await stub.ListPrefixes(pb.ListPrefixesRequest(pool_id="w"))
    await stub.ListPrefixes(pb.ListPrefixesRequest(pool_id="w", hash=TAIL))
    await stub.ListSteps(pb.ListStepsRequest(pool_id="w"))
    await stub.ListPins(pb.ListPinsRequest(pool_id="w"))
    await stub.Replay(pb.ReplayRequest(pool_id="w", step_id=2))
    await stub.Audit(pb.AuditRequest(pool_id="w"))
    assert codec.encode_snapshot(served.state) == codec.encode_snapshot(before)


async def test_a_sequence_shows_its_blocks_and_the_tables_are_columns(served):
    await served.prompt(2, 9)
    table = await served.stub.GetSequence(pb.GetSequenceRequest(pool_id="w", sequence_id=2))
    assert (table.num_slots, len(table.block_ids), list(table.reference_counts)) == (9, 3, [1, 1, 1])
    tables = await served.stub.ListTables(pb.ListTablesRequest(pool_id="w"))
    assert (list(tables.sequence_ids), list(tables.num_blocks)) == ([2], [3])
    assert tables.block_ids == table.block_ids


async def test_sharing_is_measured_as_the_paper_does(served):
    await served.cache_a_chain()
    await served.prompt(2, 9, [HEAD, TAIL])
    await served.prompt(3, 9, [HEAD, TAIL])
    answer = await served.stub.ListSharing(pb.ListSharingRequest(pool_id="w"))
    assert (answer.num_logical_blocks, answer.num_physical_blocks) == (6, 4)
    assert [list(block.holders) for block in answer.blocks] == [[2, 3], [2, 3]]


async def test_the_last_steps_come_newest_first_and_outlive_a_restart(served):
    await served.cache_a_chain()
    await served.prompt(2, 32)
    steps = (await served.stub.ListSteps(pb.ListStepsRequest(pool_id="w", count=3))).steps
    assert [step.step_id for step in steps] == [4, 3, 2]
    assert (steps[0].num_allocated_blocks, len(steps[0].evicted_block_ids)) == (8, 2)
    assert steps[1].num_released_sequences == 1
    await served.restart()
    assert (await served.stub.ListSteps(pb.ListStepsRequest(pool_id="w", count=3))).steps == steps


# --- Replay ---


async def test_a_replay_shows_the_pool_as_it_was_after_each_step(served):
    states = {}
    for sequence_id in range(1, 5):
        await served.prompt(sequence_id, 4 * sequence_id)
        pools = await served.stub.ListPools(pb.ListPoolsRequest())
        states[served.step_id] = pools.pools[0]
        await served.step(released=[sequence_id])
    for step_id, pool in states.items():
        past = await served.stub.Replay(pb.ReplayRequest(pool_id="w", step_id=step_id))
        assert (past.first_step_id, past.last_step_id) == (1, 8)
        assert past.step.step_id == past.pool.last_step_id == step_id
        assert past.pool.num_used_device_blocks == pool.num_used_device_blocks == sum(past.map.num_used)
        assert [sequence.num_slots for sequence in past.sequences] == [4 * past.sequences[0].sequence_id]
    last = await served.stub.Replay(pb.ReplayRequest(pool_id="w"))
    assert (last.step.step_id, len(last.sequences)) == (8, 0)


async def test_the_journal_reaches_back_to_the_snapshot_before_the_last(served):
    await served.restart(snapshot_interval=10)
    for _ in range(35):
        await served.step()
        await asyncio.sleep(0.002)  # lets the snapshot be written
    past = await served.stub.Replay(pb.ReplayRequest(pool_id="w"))
    assert 35 - 30 < past.first_step_id < 35 - 10
    first = await served.stub.Replay(pb.ReplayRequest(pool_id="w", step_id=past.first_step_id))
    assert first.pool.last_step_id == past.first_step_id
    error = await refused(served.stub.Replay(pb.ReplayRequest(pool_id="w", step_id=past.first_step_id - 1)))
    assert error.code() is grpc.StatusCode.OUT_OF_RANGE
    assert f"lies before {past.first_step_id}" in error.details()
    error = await refused(served.stub.Replay(pb.ReplayRequest(pool_id="w", step_id=36)))
    assert "has not been yet; the last one is 35" in error.details()
    assert served.valkey.client.xlen("octavo:w:journal") <= 30


# --- Audit ---


async def test_an_audit_of_a_sound_pool_finds_nothing(served):
    await served.cache_a_chain()
    await served.stub.Pin(pb.PinRequest(pool_id="w", hash=TAIL))
    await served.prompt(2, 9, [HEAD, TAIL])
    for _ in range(2):
        report = await served.stub.Audit(pb.AuditRequest(pool_id="w"))
        assert not report.findings
        assert (report.step_id, report.num_checked_blocks, report.num_checked_sequences) == (4, 16, 1)
        await served.restart()


async def test_an_entry_that_was_deleted_from_redis_is_found(served):
    await served.prompt(1, 9)
    await served.step(released=[1])
    served.valkey.client.xdel("octavo:w:journal", "2-0")
    (finding,) = (await served.stub.Audit(pb.AuditRequest(pool_id="w"))).findings
    assert (finding.owner, finding.message) == ("redis", "entry 2 of the journal is missing")


async def test_a_snapshot_that_was_altered_in_redis_is_found(served):
    await served.restart(snapshot_interval=3)
    await served.prompt(1, 9)
    while not served.valkey.client.exists("octavo:w:snapshot"):
        await served.step()
        await asyncio.sleep(0.01)
    position = int(served.valkey.client.hget("octavo:w:snapshot", "position"))
    other = StateCodec().encode_snapshot(served.state).replace((9).to_bytes(4, "little"), (8).to_bytes(4, "little"), 1)
    served.valkey.client.hset("octavo:w:snapshot", mapping={"position": position, "content": other})
    findings = (await served.stub.Audit(pb.AuditRequest(pool_id="w"))).findings
    assert {finding.owner for finding in findings} == {"redis"}


async def test_a_contradiction_in_memory_is_found_and_not_repaired(served):
    await served.prompt(1, 9)
    served.pool.replica.state.space.device.tier.pool.counts[5] += 1
    findings = (await served.stub.Audit(pb.AuditRequest(pool_id="w"))).findings
    told = {(finding.owner, finding.message) for finding in findings}
    assert ("memory", "device block 5: count 1, but 0 references") in told
    assert ("redis", "device block 5: counts is 0, not 1") in told
    assert served.pool.replica.state.space.device.tier.pool.counts[5] == 1


# --- Commands ---


async def test_a_pin_outlives_a_restart_and_its_time_runs_on(served):
    await served.cache_a_chain()
    answer = await served.stub.Pin(pb.PinRequest(pool_id="w", hash=TAIL, ttl_seconds=1.5))
    assert (answer.num_blocks, answer.num_pinned_blocks, answer.pin_budget_blocks, answer.refusal) == (2, 2, 2, "")
    before = served.state
    await served.restart()
    assert served.state == before
    async with asyncio.timeout(10):
        while (await served.stub.ListPins(pb.ListPinsRequest(pool_id="w"))).pins:  # noqa: ASYNC110 (a pin has no event)
            await asyncio.sleep(0.1)
    after = served.state
    await served.restart()
    assert served.state == after
    assert not after.space.pins


async def test_a_pin_beyond_the_budget_is_refused_with_the_numbers(served):
    hashes = chain("a", "b", "c")
    await served.prompt(1, 12, hashes)
    await served.seal(1, *hashes)
    answer = await served.stub.Pin(pb.PinRequest(pool_id="w", hash=hashes[2]))
    assert answer.refusal == "3 more blocks would be pinned beside 0, but the budget is 2 blocks"
    assert answer.num_pinned_blocks == 0
    assert not (await served.stub.ListPins(pb.ListPinsRequest(pool_id="w"))).pins


async def test_what_is_not_cached_is_not_pinned_and_what_is_not_pinned_is_not_unpinned(served):
    answer = await served.stub.Pin(pb.PinRequest(pool_id="w", hash=TAIL))
    assert answer.unknown
    assert f"{TAIL.hex()} is not in the prefix cache" in answer.refusal
    assert not (await served.stub.Unpin(pb.UnpinRequest(pool_id="w", hash=TAIL))).was_pinned
    assert served.pool.replica.position == 1


async def test_a_reset_names_the_holders_while_busy_and_forgets_everything_when_idle(served):
    await served.cache_a_chain()
    await served.stub.Pin(pb.PinRequest(pool_id="w", hash=TAIL))
    await served.prompt(2, 4)
    busy = await served.stub.ResetPrefixCache(pb.ResetPrefixCacheRequest(pool_id="w"))
    assert (list(busy.holders), busy.num_forgotten_blocks) == ([2], 0)
    await served.step(released=[2])
    reset = await served.stub.ResetPrefixCache(pb.ResetPrefixCacheRequest(pool_id="w"))
    assert (reset.num_forgotten_blocks, reset.num_ended_pins, list(reset.holders)) == (2, 1, [])
    before = served.state
    await served.restart()
    assert served.state == before
    assert (await served.prompt(3, 9, [HEAD, TAIL])).num_present_tokens == [0]


# --- Refusals ---


@pytest.mark.parametrize(
    ("question", "status", "part"),
    [
        (lambda stub: stub.ListSteps(pb.ListStepsRequest(pool_id="x")), "NOT_FOUND", "pool_id: 'x' is not owned"),
        (
            lambda stub: stub.GetSequence(pb.GetSequenceRequest(pool_id="w", sequence_id=9)),
            "NOT_FOUND",
            "sequence 9 has no block table",
        ),
        (
            lambda stub: stub.ListBlocks(pb.ListBlocksRequest(pool_id="w", page_size=1001)),
            "INVALID_ARGUMENT",
            "page_size: 1001 must be at most 1000",
        ),
        (lambda stub: stub.GetMap(pb.GetMapRequest(pool_id="w", num_cells=9999)), "INVALID_ARGUMENT", "at most 4096"),
        (lambda stub: stub.Pin(pb.PinRequest(pool_id="w", hash=b"x")), "INVALID_ARGUMENT", "hash: 1 bytes, must be 32"),
        (
            lambda stub: stub.Pin(pb.PinRequest(pool_id="w", hash=TAIL, ttl_seconds=-1)),
            "INVALID_ARGUMENT",
            "ttl_seconds: -1.0",
        ),
    ],
)
async def test_what_is_wrong_is_said(served, question, status, part):
    error = await refused(question(served.stub))
    assert error.code().name == status
    assert part in error.details()
