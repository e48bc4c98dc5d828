"""The rules of a step: what breaks one is refused by field, value and limit, and nothing is changed."""

from dataclasses import replace

import pytest

from gpuworker.core.state import Limits, StepState
from gpuworker.core.steps import BlockChanges, NewSequence, SamplingParams, Step
from gpuworker.errors import StepRefused

LIMITS = Limits(block_size=4, num_device_blocks=8, num_host_blocks=8, max_model_len=10, vocab_size=50)
GROWN = BlockChanges(appended_sequence_ids=(1,), appended_num_blocks=(1,), appended_block_ids=(3,))
STEP = Step(
    step_id=1,
    epoch=1,
    changes=GROWN,
    new_sequences=(NewSequence(1, SamplingParams()),),
    sequence_ids=(1,),
    num_tokens=(3,),
    positions=(0,),
    samples=(True,),
    token_ids=(7, 8, 9),
)
LONG = BlockChanges(appended_sequence_ids=(1,), appended_num_blocks=(3,), appended_block_ids=(3, 4, 5))


def sampling(**values: float) -> tuple[NewSequence, ...]:
    return (NewSequence(1, SamplingParams(**values)),)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sequence_ids": (2,)}, "sequence_ids holds 2, which is unknown"),
        ({"changes": BlockChanges()}, "sequence_ids holds 1, which is unknown"),
        ({"positions": (2,)}, "would have 5 tokens, but its table has 1 blocks of 4"),
        ({"changes": LONG, "positions": (8,)}, "would have 11 tokens, but max_model_len is 10"),
        ({"new_sequences": ()}, "new_sequences never told its parameters"),
        ({"num_tokens": (0,), "token_ids": ()}, "num_tokens holds 0"),
        ({"num_tokens": (2,)}, "sums to 2, but token_ids has 3 entries"),
        ({"token_ids": (7, 50, 9)}, "token_ids holds 50, but the vocabulary has 50 tokens"),
        ({"token_ids": (7, -1, 9)}, "token_ids holds -1"),
        ({"positions": (-1,)}, "positions holds -1"),
        ({"samples": ()}, "differ in length"),
        ({"num_choices": (1, 1, 1)}, "differ in length"),
        ({"num_choices": (0,)}, "num_choices holds 0, but must be at least 1"),
        (
            {"sequence_ids": (1, 1), "num_tokens": (1, 2), "positions": (0, 1), "samples": (True, True)},
            "names a sequence more than once",
        ),
        ({"new_sequences": sampling(temperature=-1.0)}, "temperature is -1.0"),
        ({"new_sequences": sampling(temperature=float("nan"))}, "temperature is nan"),
        ({"new_sequences": sampling(temperature=float("inf"))}, "temperature is inf"),
        ({"new_sequences": sampling(top_p=0.0)}, "top_p is 0.0"),
        ({"new_sequences": sampling(top_p=1.5)}, "top_p is 1.5"),
        ({"new_sequences": sampling(top_k=-1)}, "top_k is -1"),
    ],
)
def test_a_step_that_breaks_a_rule_is_refused_whole(fields, message):
    state = StepState(LIMITS)
    with pytest.raises(StepRefused, match=message):
        state.check(replace(STEP, **fields))
    assert state.num_sequences == 0
    state.check(STEP)


def test_parameters_told_once_hold_until_the_table_is_dropped():
    state = StepState(LIMITS)
    state.check(STEP)
    assert state.apply(STEP).samples[0].position == 3
    later = replace(STEP, changes=BlockChanges(), new_sequences=(), positions=(3,), num_tokens=(1,), token_ids=(5,))
    state.check(later)
    again = replace(STEP, changes=replace(GROWN, dropped=(1,)), new_sequences=())
    with pytest.raises(StepRefused, match="never told"):
        state.check(again)
    state.apply(Step(step_id=2, epoch=1, changes=BlockChanges(dropped=(1,))))
    with pytest.raises(StepRefused, match="never told"):
        state.check(replace(STEP, new_sequences=()))


def test_a_chunk_that_does_not_sample_needs_no_parameters():
    state = StepState(LIMITS)
    step = replace(STEP, new_sequences=(), samples=(False,))
    state.check(step)
    assert state.apply(step).samples == []


def test_a_forgotten_sequence_is_unknown():
    state = StepState(LIMITS)
    state.apply(STEP)
    state.forget()
    assert state.num_sequences == 0
    with pytest.raises(StepRefused, match="unknown"):
        state.check(replace(STEP, changes=BlockChanges()))
