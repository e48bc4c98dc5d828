"""A step may be sent before its tokens are known to anybody but the worker."""

from dataclasses import replace

import pytest

from gpuworker.core.sampled import SampledTokens
from gpuworker.core.state import Limits, StepState
from gpuworker.core.steps import (
    NO_TOKEN,
    SAMPLED_TOKEN,
    BlockChanges,
    NewSequence,
    Sample,
    SamplingParams,
    Step,
    TokenRules,
)
from gpuworker.errors import StepRefused

LIMITS = Limits(block_size=4, num_device_blocks=8, num_host_blocks=8, max_model_len=32, vocab_size=50)
FIRST = Step(
    step_id=1,
    epoch=1,
    changes=BlockChanges(appended_sequence_ids=(1, 2), appended_num_blocks=(2, 2), appended_block_ids=(3, 4, 5, 6)),
    new_sequences=(
        NewSequence(1, SamplingParams(rules=TokenRules(presence_penalty=1.0)), 3, (7, 8, 9)),
        NewSequence(2, SamplingParams(), 2),
    ),
    sequence_ids=(1, 2),
    num_tokens=(3, 2),
    positions=(0, 0),
    samples=(True, True),
    token_ids=(7, 8, 9, 7, 8),
)
NEXT = Step(
    step_id=2,
    epoch=1,
    sequence_ids=(2, 1),
    num_tokens=(1, 1),
    positions=(2, 3),
    samples=(True, True),
    token_ids=(SAMPLED_TOKEN, SAMPLED_TOKEN),
)


@pytest.fixture
def state() -> StepState:
    """After a step that sampled 41 for sequence 1 and 42 for sequence 2."""
    state = StepState(LIMITS)
    batch = state.apply(state.check(FIRST))
    state.sampled.note(batch.samples, (41, 42))
    return state


def test_each_sequence_goes_on_from_the_token_that_it_sampled(state):
    batch = state.apply(state.check(NEXT))
    assert batch.token_ids == (42, 41)
    assert batch.samples[1].history is not None
    assert batch.samples[1].history.output_ends_with([41])


def test_a_known_token_stays_as_it_is(state):
    mixed = replace(NEXT, token_ids=(5, SAMPLED_TOKEN))
    assert state.check(mixed).token_ids == (5, 41)
    known = replace(NEXT, token_ids=(5, 6))
    assert state.check(known) is known


def test_a_sequence_that_ended_without_a_token_gets_any(state):
    samples = [Sample(1, 3, SamplingParams()), Sample(2, 2, SamplingParams())]
    state.sampled.note(samples, (NO_TOKEN, 42))
    assert state.check(NEXT).token_ids == (42, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"positions": (2, 4)}, "sampled token of sequence 1 at position 4, but the last step sampled none"),
        ({"sequence_ids": (2, 3)}, "sampled token of sequence 3 at position 3, but the last step sampled none"),
        ({"num_tokens": (1, 2), "token_ids": (5, SAMPLED_TOKEN, 6)}, "token_ids holds 4294967294, but the vocabulary"),
    ],
)
def test_a_token_that_was_not_sampled_for_that_place_is_refused(state, fields, message):
    with pytest.raises(StepRefused, match=message):
        state.check(replace(NEXT, **fields))


def test_only_the_last_step_counts(state):
    state.sampled.note((), ())
    with pytest.raises(StepRefused, match="the last step sampled none"):
        state.check(NEXT)


def test_a_forgotten_sequence_has_no_sampled_token(state):
    state.forget()
    tokens: SampledTokens = state.sampled
    with pytest.raises(StepRefused, match="the last step sampled none"):
        tokens.fill_in(NEXT)
