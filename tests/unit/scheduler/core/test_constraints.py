"""Masks travel with the step, and the grammar's end is the sequence's."""

from dataclasses import replace

from doubles.constraint import Spelling
from doubles.model import expected_output
from doubles.rig import Rig, make_request
from scheduler.core.request import FinishReason

PROMPT = [1, 2, 3, 4, 5]


def only(token_id: int) -> bytes:
    return Spelling((token_id,)).mask


def constrained(max_tokens: int, wanted: list[int], num_choices: int = 1):
    return replace(make_request(PROMPT, max_tokens, num_choices), constraint=Spelling(tuple(wanted)))


def test_each_sampling_step_carries_the_mask_of_the_next_token():
    rig, wanted = Rig(budget=4, max_seqs=4), expected_output(PROMPT, 3)
    rig.scheduler.add(constrained(3, wanted))
    rig.step()
    assert rig.computed.token_masks == ()  # a chunk of the prompt samples nothing
    for token_id in wanted:
        rig.step()
        assert rig.computed.token_masks == [only(token_id)]


def test_neighbours_without_a_grammar_may_have_any_token():
    rig = Rig()
    rig.add([7, 8, 9])
    rig.scheduler.add(constrained(4, expected_output(PROMPT, 4)))
    rig.step()
    assert rig.computed.token_masks == [b"", only(expected_output(PROMPT, 1)[0])]
    rig.run()
    assert rig.outputs[1] == expected_output([7, 8, 9], 4)
    rig.check_idle()


def test_the_end_of_the_grammar_ends_the_sequence_with_stop():
    rig, wanted = Rig(), expected_output(PROMPT, 3)
    group = rig.scheduler.add(constrained(10, wanted))
    rig.run()
    assert rig.outputs[group.group_id] == wanted
    assert rig.reasons[group.group_id] is FinishReason.STOP
    rig.check_idle()


def test_a_grammar_that_breaks_ends_its_sequence_alone():
    rig = Rig()
    broken = rig.scheduler.add(constrained(10, [96 - token_id for token_id in expected_output(PROMPT, 2)]))
    other = rig.add([7, 8, 9])
    rig.run()
    assert rig.reasons[broken.group_id] is FinishReason.ERROR
    assert rig.outputs[other.group_id] == expected_output([7, 8, 9], 4)
    rig.check_idle()


def test_choices_have_grammars_of_their_own():
    rig = Rig()
    request = constrained(4, expected_output(PROMPT, 4), num_choices=2)
    group = rig.scheduler.add(request)
    first, second = group.sequences
    rig.step()
    assert rig.computed.token_masks == [only(expected_output(PROMPT, 1)[0])]
    assert first.finish_reason is None
    assert second.finish_reason is FinishReason.ERROR  # another token than the one that is spelt
    assert request.constraint.num_taken == 0
    rig.run()
    assert rig.choices[group.group_id][0] == expected_output(PROMPT, 4)
    rig.check_idle()


def test_a_grammar_stays_where_it_is_while_its_tokens_are_computed_again():
    rig, wanted = Rig(num_blocks=4), expected_output(PROMPT, 6)
    rig.add(range(6), max_tokens=8)
    group = rig.scheduler.add(constrained(6, wanted))
    rig.run()
    assert rig.scheduler.num_preemptions
    assert rig.outputs[group.group_id] == wanted
    rig.check_idle()
