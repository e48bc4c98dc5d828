"""The Orca baselines in front of a real worker: a chunk as a block table."""

from kvmanager.core.plan import EnteringGroups, GroupId, Plan, RunningGroups, SequenceId
from kvmanager.core.spaces.contiguous import ContiguousShape
from kvmanager.core.spaces.memory_space import Estimate, Lengths
from kvmanager.core.spaces.served import KnownOutputs, ServedContiguousSpace

KNOWN = KnownOutputs({6: 6, 9: 20}, max_model_len=64)


class Rig:
    """32 blocks of 4 slots, and what a worker knows of its tables."""

    def __init__(self, estimate=Estimate.ORACLE):
        self.space = ServedContiguousSpace(ContiguousShape(4, 32, KNOWN.max_model_len, estimate), KNOWN)
        self.tables = {}
        self.step_id = 0

    def apply(self, entering=(), running=(), released=()):
        """``entering`` are pairs of a sequence and its number of prompt tokens."""
        self.step_id += 1
        ids = [SequenceId(i) for i, _ in entering]
        groups = EnteringGroups(
            1000, [GroupId(i) for i in ids], [1] * len(ids), ids, [tokens for _, tokens in entering], [()] * len(ids)
        )
        running = RunningGroups(sequence_ids=[SequenceId(i) for i in running], num_new_slots=[1] * len(running))
        grant = self.space.apply(Plan(self.step_id, released=list(released), running=running, entering=groups))
        for sequence_id in grant.changes.dropped:
            self.tables.pop(sequence_id, None)
        blocks = iter(grant.changes.appended_block_ids)
        for sequence_id, count in zip(
            grant.changes.appended_sequence_ids, grant.changes.appended_num_blocks, strict=True
        ):
            self.tables.setdefault(sequence_id, []).extend(next(blocks) for _ in range(count))
        return grant


def test_a_table_is_a_run_of_adjacent_blocks_that_grows_with_the_slots():
    rig = Rig()
    rig.apply(entering=[(1, 6), (2, 9)])
    assert [len(rig.tables[1]), len(rig.tables[2])] == [2, 3]
    for _ in range(3):
        rig.apply(running=[1, 2])
    assert [len(rig.tables[1]), len(rig.tables[2])] == [3, 3]
    for blocks in rig.tables.values():
        assert blocks == list(range(blocks[0], blocks[0] + len(blocks)))
    assert not set(rig.tables[1]) & set(rig.tables[2])


def test_a_released_sequence_is_dropped_and_its_chunk_is_given_to_the_next():
    rig = Rig(Estimate.MAX)
    rig.apply(entering=[(1, 6), (2, 6), (3, 9)])
    assert set(rig.tables) == {1, 2}  # two chunks of 64 slots are the whole pool
    before = rig.tables[1]
    rig.apply(released=[1], entering=[(3, 9)])
    assert set(rig.tables) == {2, 3}
    assert rig.tables[3][0] == before[0]


def test_an_oracle_knows_an_output_by_its_prompt_and_takes_an_unknown_one_for_the_longest():
    assert KNOWN.lengths(9) == Lengths(9, 20)
    assert KNOWN.lengths(10) == Lengths(10, 54)
    assert KNOWN.lengths(64) == Lengths(64, 1)
