"""What plans are said to weigh, against the messages that the kvmanager journals."""

from types import SimpleNamespace

import pytest

from kvmanager.v1 import kvmanager_pb2 as pb
from octavo.cluster_simulation.batch import Row
from octavo.cluster_simulation.kvmanager_load import PLAN_S, ROW_S, SERVICE_S, SERVING_BLOCK_SIZE, KvManagerLoad

FIRST_ID = 100_000  # ids of a scheduler that has run for a while take three bytes


def running(num_rows, sealed=0):
    ids = range(FIRST_ID, FIRST_ID + num_rows)
    return pb.Plan(
        step_id=FIRST_ID,
        sealed=pb.SealedBlocks(
            sequence_ids=[FIRST_ID] * sealed, block_indexes=range(sealed), hashes=bytes(32 * sealed)
        ),
        running=pb.RunningGroups(
            group_ids=ids,
            num_sequences=[1] * num_rows,
            preemptions=[pb.PREEMPTION_RECOMPUTE] * num_rows,
            sequence_ids=ids,
            num_new_slots=[1] * num_rows,
        ),
    )


def rows(num_rows, num_new_slots, num_tokens=0):
    return [Row(SimpleNamespace(num_tokens=num_tokens), num_new_slots)] * num_rows


@pytest.mark.parametrize("num_rows", [1, 16, 256])
def test_the_journal_of_decodes_is_as_long_as_their_messages(num_rows):
    """A sequence fills a block every sixteen steps, so of 256 sequences sixteen seal one in each."""
    load = KvManagerLoad()
    load.decoded(num_rows, 160)
    messages = (
        160 * running(num_rows).ByteSize() + 10 * num_rows * (running(1, 16).ByteSize() - running(1).ByteSize()) / 16
    )
    assert load.journal_bytes == pytest.approx(messages, rel=0.2)


def test_the_journal_of_a_prompt_is_as_long_as_its_messages():
    num_tokens = 12_000
    num_blocks = num_tokens // SERVING_BLOCK_SIZE
    load = KvManagerLoad()
    load.planned([], rows(1, num_tokens, num_tokens))
    entering = pb.Plan(
        step_id=FIRST_ID,
        entering=pb.EnteringGroups(
            token_budget=8192,
            group_ids=[FIRST_ID],
            num_sequences=[1],
            sequence_ids=[FIRST_ID],
            num_tokens=[num_tokens],
            prefix_hashes=[bytes(32 * num_blocks)],
        ),
    )
    messages = entering.ByteSize() + running(0, num_blocks).ByteSize()
    assert load.journal_bytes == pytest.approx(messages, rel=0.05)


def test_a_decode_step_of_256_sequences_is_what_was_measured():
    load = KvManagerLoad()
    load.decoded(256, 1)
    assert pytest.approx(128e-6, rel=0.01) == PLAN_S + 256 * ROW_S
    assert PLAN_S + 256 * ROW_S < load.core_s < 1.35 * (PLAN_S + 256 * ROW_S)  # blocks that become full come on top
    assert load.service_s == load.core_s + SERVICE_S


def test_loads_add_up():
    one, two = KvManagerLoad(), KvManagerLoad()
    one.planned(rows(3, 1), rows(1, 512, 600))
    two.decoded(4, 5)
    both = KvManagerLoad()
    both.add(one)
    both.add(two)
    assert (both.num_plans, both.num_rows, both.num_entering_tokens, both.num_sealed_tokens) == (6, 24, 600, 535)
    assert both.core_s == pytest.approx(one.core_s + two.core_s)
