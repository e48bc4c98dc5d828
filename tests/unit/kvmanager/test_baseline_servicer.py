"""The kvmanager that keeps memory as the paper's baselines do."""

import asyncio
import json

import pytest

from kvmanager.baseline_servicer import Baseline, BaselineServicer
from kvmanager.core.spaces.memory_space import Estimate
from kvmanager.core.spaces.served import KnownOutputs
from kvmanager.v1 import kvmanager_pb2 as pb

OPEN = pb.PoolRequest(
    open=pb.OpenPool(pool_id="p", epoch=7, block_size=4, num_device_blocks=32, num_host_blocks=8, forget_sequences=True)
)


class Refused(Exception):
    """How the call of a test ends."""


class Context:
    """Ends a call as gRPC would."""

    async def abort(self, _status, details):
        raise Refused(details)


def entering(step_id, sequence_id, num_tokens):
    groups = pb.EnteringGroups(
        token_budget=512,
        group_ids=[sequence_id],
        num_sequences=[1],
        sequence_ids=[sequence_id],
        num_tokens=[num_tokens],
        prefix_hashes=[b""],
    )
    return pb.PoolRequest(plan=pb.Plan(step_id=step_id, entering=groups))


def decoding(step_id, sequence_id):
    running = pb.RunningGroups(
        group_ids=[sequence_id],
        num_sequences=[1],
        preemptions=[pb.PREEMPTION_RECOMPUTE],
        sequence_ids=[sequence_id],
        num_new_slots=[1],
    )
    return pb.PoolRequest(plan=pb.Plan(step_id=step_id, running=running))


@pytest.fixture
def occupancy(tmp_path):
    return tmp_path / "occupancy.json"


@pytest.fixture
def ask(occupancy):
    """Sends requests as one caller; returns the answers."""
    servicer = BaselineServicer(Baseline(Estimate.ORACLE, KnownOutputs({6: 9}, 64), occupancy))

    async def answers(requests):
        async def stream():
            for request in requests:
                yield request

        return [answer async for answer in servicer.Arbitrate(stream(), Context())]

    return lambda *requests: asyncio.run(answers(requests))


def test_a_request_enters_with_a_chunk_for_the_output_that_it_will_have(ask, occupancy):
    opened, granted = ask(OPEN, entering(1, sequence_id=5, num_tokens=6))
    assert opened.opened == pb.PoolOpened(epoch=7)
    assert granted.grant.usage.num_used_device_blocks == 4  # 6 + 9 tokens in blocks of 4
    assert list(granted.grant.changes.appended_num_blocks) == [2]  # of which it has come to two
    assert json.loads(occupancy.read_text()) == {"num_slots": 128, "filled": 6, "reserved": 9, "internal": 0}


def test_a_repeated_step_gets_its_stored_answer_and_writes_nothing_again(ask, occupancy):
    answers = ask(OPEN, entering(1, 5, 6), decoding(2, 5), decoding(2, 5))
    assert answers[2] == answers[3]
    assert json.loads(occupancy.read_text())["filled"] == 7


def test_an_opening_forgets_everything(ask):
    answers = ask(OPEN, entering(1, 5, 6), OPEN, entering(2, 5, 6))
    assert answers[1].grant.changes == answers[3].grant.changes


def test_a_plan_before_an_opening_is_refused(ask):
    with pytest.raises(Refused, match="must open the pool"):
        ask(entering(1, 5, 6))


def test_a_sequence_that_outgrows_its_chunk_is_a_broken_promise(ask):
    with pytest.raises(Refused, match="wants 16 slots, but reserved 15"):
        ask(OPEN, entering(1, 5, 6), *(decoding(step_id, 5) for step_id in range(2, 12)))
