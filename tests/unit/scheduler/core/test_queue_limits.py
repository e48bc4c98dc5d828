"""How much may wait, and who has to leave first."""

from doubles.rig import make_request
from scheduler.core.queue_limits import QueueLimits
from scheduler.core.request import GroupId, SequenceId
from scheduler.core.sequence import SequenceGroup, new_group


def waiting(*sizes: tuple[int, int]) -> list[SequenceGroup]:
    """Groups of so many prompt tokens and choices."""
    return [
        new_group(make_request(range(num_tokens), num_choices=choices), GroupId(i), map(SequenceId, range(9)))
        for i, (num_tokens, choices) in enumerate(sizes)
    ]


def test_a_request_waits_while_there_is_room():
    limits = QueueLimits(max_sequences=3, max_tokens=20)
    assert limits.overflow(waiting((10, 1), (5, 1)), [make_request(range(5))]) is None


def test_every_choice_counts():
    overflow = QueueLimits(max_sequences=4).overflow(waiting((1, 1), (1, 2)), [make_request(range(2), num_choices=3)])
    assert overflow is not None
    assert overflow.message == (
        "3 sequences wait already, and with the 3 of this request they would be more than 4, which is the limit"
    )
    assert overflow.num_groups == 2


def test_the_tokens_of_a_prompt_count_once():
    overflow = QueueLimits(max_tokens=20).overflow(waiting((15, 3), (4, 1)), [make_request(range(2))])
    assert overflow is not None
    assert overflow.message.startswith("prompts with 19 tokens wait already, and with the 2 of this request")
    assert "more than 20" in overflow.message
    assert overflow.num_groups == 1


def test_what_is_larger_than_the_limit_may_wait_alone():
    limits = QueueLimits(max_sequences=2, max_tokens=3)
    assert limits.overflow([], [make_request(range(9), num_choices=8)]) is None
    overflow = limits.overflow(waiting((1, 1)), [make_request(range(9))])
    assert overflow is not None
    assert overflow.num_groups == 1


def test_the_prompts_of_a_call_wait_together_or_not_at_all():
    limits = QueueLimits(max_sequences=4, max_tokens=12)
    call = [make_request(range(2), num_choices=2), make_request(range(3))]
    assert not limits.excess(call)
    assert limits.overflow([], call) is None
    overflow = limits.overflow(waiting((1, 1), (1, 1)), call)
    assert overflow is not None
    assert overflow.num_groups == 1


def test_a_call_that_can_never_wait_is_told_so():
    assert QueueLimits(max_sequences=4).excess([make_request(range(2), num_choices=3)] * 2) == (
        "2 prompts with 6 sequences in one call, but at most 4 may wait"
    )
    assert QueueLimits(max_tokens=12).excess([make_request(range(5))] * 3) == (
        "3 prompts with 15 tokens in one call, but at most 12 may wait"
    )
    assert not QueueLimits(max_sequences=4).excess([make_request(range(2), num_choices=9)])  # may wait alone
