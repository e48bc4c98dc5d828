"""What an engine tells administrators, and how it holds still for them."""

import asyncio

import pytest

from doubles.administrator import AdministratorDouble, PoolsDouble
from doubles.cluster import Cluster, read
from doubles.rig import make_request
from scheduler.core.prefix_hash import HASH_BYTES
from scheduler.engine import Administration, administration
from scheduler.engine.administration import worker_findings
from scheduler.errors import NotFound, NotReady, RequestRefused
from scheduler.inspection import Tables


class Views:
    """The kvmanager's tables and the worker's, taken from the doubles at one moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.delay_s = 0.0
        self.error: Exception | None = None

    async def tables(self, *_: object) -> Tables:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.delay_s)
        pool = self.cluster.memory.pool
        return Tables(1, pool.last_step_id, {key: tuple(blocks) for key, blocks in pool.tables.items()})


class WorkerViews(Views):
    async def tables(self, *_: object) -> Tables:
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.delay_s)
        model = self.cluster.worker.model
        return Tables(1, model.last_step_id, {key: tuple(blocks) for key, blocks in model.tables.items()})


@pytest.fixture
def views(cluster) -> WorkerViews:
    return WorkerViews(cluster)


@pytest.fixture
def admin(cluster, views) -> Administration:
    pools = PoolsDouble()
    pools.tables = Views(cluster).tables
    return Administration(cluster.engine.replica, pools, views)


async def test_an_audit_under_load_compares_both_views_at_a_step_boundary(cluster, admin, views):
    await cluster.ready()
    views.delay_s = 0.002  # steps would go on meanwhile, if they could
    streams = [asyncio.create_task(read(cluster.engine.generate(make_request(range(6), 40)))) for _ in range(3)]
    for _ in range(10):
        audit = await admin.audit("w0")
        assert (list(audit.findings), list(audit.not_compared)) == ([], [])
        await asyncio.sleep(0.001)
    await asyncio.gather(*streams)


async def test_a_worker_that_holds_another_table_is_found(cluster, admin):
    await cluster.ready()
    async with asyncio.timeout(5):
        stream = cluster.engine.generate(make_request(range(6), 100))
        await anext(stream)
        next(iter(cluster.worker.model.tables.values())).append(31)
        audit = await admin.audit("w0")
    assert [finding.owner for finding in audit.findings] == ["worker"]
    assert "31], not [" in audit.findings[0].message
    cluster.worker.model.tables.clear()
    await stream.aclose()


async def test_a_worker_that_does_not_answer_is_said_to_be_not_compared(cluster, admin, views):
    await cluster.ready()
    views.error = NotReady("w does not answer")
    audit = await admin.audit("w0")
    assert list(audit.not_compared) == ["worker: w does not answer"]


async def test_a_frozen_step_does_not_hold_an_audit_up_for_ever(cluster, admin, monkeypatch):
    monkeypatch.setattr(administration, "PAUSE_S", 0.05)
    await cluster.ready()
    cluster.worker.thaw.clear()
    stream = asyncio.create_task(read(cluster.engine.generate(make_request(range(6), 4))))
    await asyncio.sleep(0.02)
    audit = await admin.audit("w0")
    assert "no step boundary" in audit.not_compared[0]
    cluster.worker.thaw.set()
    await stream


async def test_the_only_pool_is_meant_where_none_is_named(cluster, admin):
    await cluster.ready()
    assert await admin.resolve(None) == await admin.resolve("w0") == "w0"
    with pytest.raises(NotFound, match="pool is 'w9', but there are"):
        await admin.resolve("w9")


async def test_live_requests_are_told_without_their_prompts(cluster, admin):
    await cluster.ready()
    assert admin.live_requests().requests == []
    stream = cluster.engine.generate(make_request(range(6), 100))
    await anext(stream)
    (request,) = admin.live_requests().requests
    (sequence,) = request.sequences
    assert (sequence.status, sequence.num_prompt_tokens) == ("running", 6)
    assert sequence.num_output_tokens >= 1
    await stream.aclose()
    assert admin.live_requests().requests == []


async def test_a_prompt_has_the_hash_under_which_its_blocks_are_sealed(cluster, admin):
    await cluster.ready()
    await read(cluster.engine.generate(make_request(range(8), 4)))
    await cluster.idle()
    cached = cluster.memory.pool.state.space.snapshot().device_hashes
    assert admin.prefix_hash(range(9), "") in cached
    assert admin.prefix_hash(range(9), "salt") not in cached
    assert len(admin.prefix_hash(range(4), "")) == HASH_BYTES
    with pytest.raises(RequestRefused, match="prompt has 3 tokens, but a block has 4"):
        admin.prefix_hash(range(3), "")


def test_every_kind_of_difference_is_worded():
    ours = Tables(1, 5, {1: (3, 4), 2: (5,), 9: ()})
    assert worker_findings(ours, Tables(1, 5, {1: (3, 4), 2: (5,)})) == []
    (stale,) = worker_findings(ours, Tables(2, 5, {}))
    assert stale.message == "epoch is 2, not 1"
    messages = [finding.message for finding in worker_findings(ours, Tables(1, 4, {1: (3,), 7: (1,)}))]
    assert messages == [
        "the last step is 4, not 5",
        "sequence 1: blocks are [3], not [3, 4]",
        "sequence 2: blocks are none, not [5]",
        "sequence 7: blocks are [1], not none",
    ]
    many = worker_findings(ours, Tables(1, 5, dict.fromkeys(range(10, 60), (1,))))
    assert many[-1].message == "the tables of 32 more sequences differ"


def test_a_side_that_answered_no_step_yet_is_compared_by_its_tables_alone():
    settled, restarted = Tables(1, 5, {1: (3,)}), Tables(1, 0, {1: (3,)})
    assert worker_findings(settled, restarted) == worker_findings(restarted, settled) == []
    (lost,) = worker_findings(settled, Tables(1, 0, {}))
    assert lost.message == "sequence 1: blocks are none, not [3]"


def test_the_double_promises_what_the_engine_does():
    assert {name for name in dir(AdministratorDouble) if name[0] != "_"} <= {*dir(Administration), "pools"}
