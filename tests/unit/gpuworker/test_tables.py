"""Block tables: the documented order of changes, and refusals that change nothing."""

import pytest

from gpuworker.core.steps import BlockChanges
from gpuworker.core.tables import BlockTables
from gpuworker.errors import StepRefused


@pytest.fixture
def tables() -> BlockTables:
    tables = BlockTables(num_device_blocks=8, num_host_blocks=4)
    tables.apply(appended(1, 5, 2))
    return tables


def appended(sequence_id: int, *block_ids: int) -> BlockChanges:
    return BlockChanges(
        appended_sequence_ids=(sequence_id,), appended_num_blocks=(len(block_ids),), appended_block_ids=block_ids
    )


def test_a_sequence_begins_and_grows_by_appended_blocks(tables):
    changes = BlockChanges(appended_sequence_ids=(1, 2), appended_num_blocks=(1, 2), appended_block_ids=(7, 0, 3))
    lengths = tables.check(changes)
    assert (lengths[1], lengths[2], lengths[3]) == (3, 2, 0)
    tables.apply(changes)
    assert list(tables.table(1)) == [5, 2, 7]
    assert list(tables.table(2)) == [0, 3]


def test_a_child_shares_its_parents_blocks_and_then_goes_its_own_way(tables):
    changes = BlockChanges(
        forks=((1, 2),),
        replaced_sequence_ids=(2,),
        replaced_indexes=(1,),
        replaced_block_ids=(6,),
        appended_sequence_ids=(1,),
        appended_num_blocks=(1,),
        appended_block_ids=(7,),
    )
    tables.check(changes)
    tables.apply(changes)
    assert list(tables.table(1)) == [5, 2, 7]
    assert list(tables.table(2)) == [5, 6]


def test_a_parent_may_be_dropped_in_the_step_that_forks_it(tables):
    changes = BlockChanges(forks=((1, 2),), dropped=(1,))
    tables.check(changes)
    tables.apply(changes)
    assert list(tables.table(2)) == [5, 2]
    with pytest.raises(KeyError):
        tables.table(1)


def test_a_table_dropped_and_appended_in_one_step_begins_anew(tables):
    changes = BlockChanges(dropped=(1,), appended_sequence_ids=(1,), appended_num_blocks=(1,), appended_block_ids=(4,))
    assert tables.check(changes)[1] == 1
    tables.apply(changes)
    assert list(tables.table(1)) == [4]


def test_dropping_a_sequence_without_a_table_is_allowed(tables):
    changes = BlockChanges(dropped=(99,))
    tables.check(changes)
    tables.apply(changes)
    assert len(tables) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (BlockChanges(forks=((9, 2),)), "sequence 9 is unknown"),
        (BlockChanges(forks=((1, 1),)), "sequence 1 has a table already"),
        (appended(1, 8), "appended_block_ids holds block 8, but the pool has 8 blocks"),
        (appended(1, -1), "appended_block_ids holds block -1"),
        (appended(1), "appended_num_blocks holds 0"),
        (
            BlockChanges(appended_sequence_ids=(1,), appended_num_blocks=(2,), appended_block_ids=(3,)),
            "sums to 2, but appended_block_ids has 1",
        ),
        (BlockChanges(appended_sequence_ids=(1,)), "differ in length"),
        (
            BlockChanges(replaced_sequence_ids=(1,), replaced_indexes=(2,), replaced_block_ids=(0,)),
            "replaced_indexes holds 2, but the table of sequence 1 has 2 blocks",
        ),
        (
            BlockChanges(dropped=(1,), replaced_sequence_ids=(1,), replaced_indexes=(0,), replaced_block_ids=(0,)),
            "the table of sequence 1 has 0 blocks",
        ),
        (BlockChanges(replaced_sequence_ids=(1,)), "differ in length"),
        (BlockChanges(swap_outs=(0, 4)), r"swap_outs \(destination\) holds block 4, but the pool has 4 blocks"),
        (BlockChanges(swap_ins=(4, 0)), r"swap_ins \(source\) holds block 4, but the pool has 4 blocks"),
        (BlockChanges(copies=(0, 8)), r"copies \(destination\) holds block 8"),
        (BlockChanges(copies=(0, 3, 1, 3)), "writes a block more than once"),
        (BlockChanges(swap_ins=(0,)), "must hold pairs"),
    ],
)
def test_bad_changes_are_refused_by_field_value_and_limit(tables, changes, message):
    with pytest.raises(StepRefused, match=message):
        tables.check(changes)
    assert list(tables.table(1)) == [5, 2]
