"""The layout of a step: every token reads and writes where its block table says."""

from array import array

import pytest

from gpuworker.core.batch import SequenceSampling, lay_out, slots
from gpuworker.core.steps import BlockChanges, SamplingParams, Step
from gpuworker.core.tables import BlockTables


def test_a_batch_of_a_prefill_chunk_and_a_decode_is_laid_out_without_padding():
    tables = BlockTables(num_device_blocks=10, num_host_blocks=0)
    tables.apply(
        BlockChanges(appended_sequence_ids=(1, 2), appended_num_blocks=(2, 3), appended_block_ids=(7, 3, 9, 0, 4))
    )
    sampling = {2: SequenceSampling(SamplingParams(seed=11))}
    step = Step(
        step_id=1,
        epoch=1,
        sequence_ids=(1, 2),
        num_tokens=(3, 1),
        positions=(2, 9),
        samples=(False, True),
        token_ids=(100, 101, 102, 200),
    )
    batch = lay_out(step, tables, sampling, block_size=4)
    assert list(batch.positions) == [2, 3, 4, 9]
    assert list(batch.slot_mapping) == [7 * 4 + 2, 7 * 4 + 3, 3 * 4, 4 * 4 + 1]
    assert list(batch.query_starts) == [0, 3, 4]
    assert list(batch.context_lens) == [5, 10]
    assert [list(table) for table in batch.block_tables] == [[7, 3], [9, 0, 4]]
    assert list(batch.sample_rows) == [3]
    assert batch.samples[0].position == 10  # the token that is drawn comes after the last of the context
    assert batch.samples[0].params.seed == 11


def test_choices_that_begin_together_are_drawn_from_one_row_of_logits():
    tables = BlockTables(num_device_blocks=16, num_host_blocks=0)
    tables.apply(BlockChanges(appended_sequence_ids=(5, 6), appended_num_blocks=(1, 1), appended_block_ids=(7, 9)))
    sampling = {
        5: SequenceSampling(SamplingParams(temperature=1.0, seed=3)),
        6: SequenceSampling(SamplingParams(seed=11, choice_index=2)),
    }
    step = Step(1, 1, BlockChanges(), (), (5, 6), (2, 1), (0, 0), (True, True), (1, 2, 3), num_choices=(3, 1))
    batch = lay_out(step, tables, sampling, block_size=4)
    assert list(batch.sample_rows) == [1, 2]
    assert list(batch.logit_rows) == [0, 0, 0, 1]
    assert [(s.sequence_id, s.params.seed, s.params.choice_index) for s in batch.samples] == [
        (5, 3, 0),
        (5, 3, 1),
        (5, 3, 2),
        (6, 11, 2),
    ]


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
@pytest.mark.parametrize("first", [0, 1, 4, 7])
@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_slots_follow_the_table_position_by_position(block_size, first, count):
    table = array("i", [(5 * index + 3) % 16 for index in range(16)])
    naive = [
        table[position // block_size] * block_size + position % block_size for position in range(first, first + count)
    ]
    assert list(slots(table, first, first + count, block_size)) == naive
