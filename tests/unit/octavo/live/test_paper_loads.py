"""The paper's requests, made smaller for a small machine."""

from statistics import fmean

import pytest

from octavo.bench.workload import Passage
from octavo.live.loads import MAX_MODEL_LEN, SHARED, Scale, burst, known_outputs
from octavo.simulation.lengths import Dataset, sample_lengths


@pytest.mark.parametrize("divisor", [1, 2, 8, 16])
def test_lengths_context_and_blocks_shrink_by_one_factor(divisor):
    scale = Scale(divisor)
    whole = sample_lengths(Dataset.SHAREGPT, 60, MAX_MODEL_LEN, seed=0)
    lengths = scale.lengths(Dataset.SHAREGPT, 60)
    outputs = fmean(length.num_output_tokens for length in lengths)
    assert outputs == pytest.approx(fmean(length.num_output_tokens for length in whole) / divisor, rel=0.03)
    assert scale.max_model_len == 2048 // divisor
    assert scale.block_size == 16 // divisor


@pytest.mark.parametrize("dataset", [Dataset.SHAREGPT, Dataset.ALPACA, Dataset.TRANSLATION])
def test_prompts_that_an_oracle_knows_differ_in_length_and_every_request_fits(dataset):
    scale = Scale(8)
    lengths = scale.known_lengths(dataset, 40)
    assert len(known_outputs(lengths)) == 40
    assert all(length.num_prompt_tokens + length.num_output_tokens < scale.max_model_len for length in lengths)
    assert all(length.num_prompt_tokens > 0 and length.num_output_tokens > 0 for length in lengths)


def test_a_shared_prefix_is_a_part_of_each_prompt():
    lengths = Scale(8).lengths(Dataset.SHAREGPT, 5)
    for length, shape in zip(lengths, burst(lengths, "test", num_shared_tokens=1).shapes, strict=True):
        assert shape.num_prompt_tokens == length.num_prompt_tokens
        assert shape.passages[0] == Passage(SHARED, 1)
