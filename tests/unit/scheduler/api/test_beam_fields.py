"""`use_beam_search` and its fields: what is accepted, what it means, and what is refused with the field's name."""

import pytest

from scheduler.core.request import BeamParams, EarlyStopping

BODY = {"prompt": "abc", "use_beam_search": True, "n": 2, "max_tokens": 4}


@pytest.mark.parametrize(
    ("more", "beams"),
    [
        ({}, BeamParams(2)),
        ({"beam_width": 4}, BeamParams(4)),
        ({"best_of": 3}, BeamParams(3)),
        ({"best_of": 3, "beam_width": 3, "temperature": 0, "top_k": -1, "top_p": 1}, BeamParams(3)),
        ({"length_penalty": 0.5, "early_stopping": True}, BeamParams(2, 0.5, EarlyStopping.ALWAYS)),
        ({"early_stopping": "never"}, BeamParams(2, 1.0, EarlyStopping.NEVER)),
    ],
)
async def test_the_search_that_is_asked_for(client, generator, more: dict, beams: BeamParams):
    answer = await client.post("/v1/completions", json=BODY | more)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["choices"]) == 2
    [request] = generator.accepted
    assert (request.beams, request.num_choices, request.sampling.temperature) == (beams, 2, 0.0)


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"temperature": 1}, "temperature", "temperature is 1, but with use_beam_search: true must be 0 or absent"),
        ({"stream": True}, "stream", "not accepted with use_beam_search: true"),
        ({"stop": "x"}, "stop", "not accepted"),
        ({"top_p": 0.5}, "top_p", "not accepted"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not accepted"),
        ({"presence_penalty": 1}, "presence_penalty", "not accepted"),
        ({"regex": "a+"}, "regex", "not accepted"),
        ({"n": 1}, "beam_width", "beam_width is 1, but must be at least 2"),
        ({"n": 5, "beam_width": 4}, "beam_width", "beam_width is 4, but must be at least 2 and n"),
        ({"best_of": 4, "beam_width": 3}, "best_of", "best_of is 4, but must be beam_width, which is 3"),
        ({"beam_width": 129}, "beam_width", "128"),
        ({"beam_width": 9}, "beam_width", "9 beams at once, but must ask for 1 to 8"),
        ({"length_penalty": 11}, "length_penalty", "10"),
        ({"early_stopping": "maybe"}, "early_stopping", "maybe"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"use_beam_search": False, "beam_width": 4}, "beam_width", "only accepted with use_beam_search: true"),
        ({"use_beam_search": False, "early_stopping": True}, "early_stopping", "only accepted"),
    ],
)
async def test_what_a_search_cannot_do_is_refused(client, generator, more: dict, param: str, words: str):
    answer = await client.post("/v1/completions", json=BODY | more)
    error = answer.json()["error"]
    assert answer.status_code == 400, answer.text
    assert error["param"].split(".")[0] == param
    assert words in error["message"]
    assert generator.accepted == []
