"""What can never be served is refused with the numbers."""

import pytest

from doubles.rig import make_request
from scheduler.core.limits import Limits
from scheduler.errors import RequestRefused

LIMITS = Limits(max_model_len=100, vocab_size=50, block_size=16, num_device_blocks=4, max_num_seqs=6)


def refusal(prompt: list[int] | range, max_tokens: int = 4, num_choices: int = 1, **stop: object) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        LIMITS.check(make_request(prompt, max_tokens, num_choices, **stop))
    return caught.value


def test_an_empty_prompt():
    assert refusal([]).param == "prompt"


def test_a_request_over_the_context_names_context_prompt_and_max_tokens():
    error = refusal([1] * 90, max_tokens=11)
    assert error.message == "the context is 100 tokens, but the request needs 101: 90 in the prompt and max_tokens 11"
    assert (error.param, error.code) == ("max_tokens", "context_length_exceeded")


def test_a_request_that_can_never_fit_the_pool_names_the_blocks():
    error = refusal([1] * 60, max_tokens=6)
    assert "needs 5 blocks of 16 tokens" in error.message
    assert error.message.endswith("but the pool has 4")


def test_the_last_token_needs_no_slot():
    LIMITS.check(make_request([1] * 60, max_tokens=5))
    LIMITS.check(make_request([1] * 64, max_tokens=0))


def test_choices_share_the_full_blocks_of_the_prompt_and_no_others():
    LIMITS.check(make_request([1] * 20, max_tokens=13, num_choices=3))  # 1 shared, 3 own: 4
    error = refusal([1] * 20, max_tokens=14, num_choices=3)
    assert "needs 7 blocks of 16 tokens" in error.message
    assert "max_tokens 14 and 3 choices of 2 blocks each" in error.message
    LIMITS.check(make_request([1] * 64, max_tokens=1, num_choices=6))


@pytest.mark.parametrize("num_choices", [0, 7])
def test_the_number_of_choices_is_bounded_by_what_may_run(num_choices: int):
    error = refusal([1], num_choices=num_choices)
    assert f"asks for {num_choices} choices" in error.message
    assert error.param == "n"


@pytest.mark.parametrize("token_id", [-1, 50])
def test_a_token_outside_the_vocabulary_names_its_place(token_id: int):
    assert refusal([1, 2, token_id]).message == (
        f"prompt has token id {token_id} at position 2, but the vocabulary has ids 0 to 49"
    )


def test_negative_max_tokens_and_empty_stop_strings():
    assert refusal([1], max_tokens=-1).param == "max_tokens"
    assert refusal([1], stop=("a", "")).param == "stop"


@pytest.mark.parametrize("num_choices", [1, 2, 3])
@pytest.mark.parametrize("num_prompt_tokens", [1, 15, 16, 17, 31])
def test_the_largest_max_tokens_is_accepted_and_one_more_is_not(num_prompt_tokens, num_choices):
    prompt = [1] * num_prompt_tokens
    largest = LIMITS.max_output_tokens(num_prompt_tokens, num_choices)
    LIMITS.check(make_request(prompt, largest, num_choices))
    assert refusal(prompt, largest + 1, num_choices).param == "max_tokens"


def test_the_context_bounds_max_tokens_too_and_there_is_always_one():
    roomy = Limits(max_model_len=100, vocab_size=50, block_size=16, num_device_blocks=400, max_num_seqs=6)
    assert roomy.max_output_tokens(90, num_choices=2) == 10
    assert roomy.max_output_tokens(120, num_choices=1) == 1
    assert LIMITS.max_output_tokens(1000, num_choices=1) == 1
