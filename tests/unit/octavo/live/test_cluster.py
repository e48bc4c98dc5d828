"""What a live cluster is asked."""

from octavo.bench.server import Server
from octavo.live.cluster import with_fields
from octavo.live.sharing import fields_of

SERVER = Server("http://127.0.0.1:9", "tiny", frozenset({"ignore_eos"}), takes_token_ids=True)


def test_several_outputs_are_drawn_and_streamed():
    body = with_fields(SERVER, fields_of("parallel_sampling", 4)).body([1, 2], 8)
    assert (body["n"], body["temperature"], body["stream"], body["ignore_eos"]) == (4, 1.0, True, True)


def test_a_beam_search_is_not_streamed():
    body = with_fields(SERVER, fields_of("beam_search", 4)).body([1, 2], 8)
    assert body["use_beam_search"] is True
    assert "stream" not in body
    assert "stream_options" not in body
    assert body["prompt"] == [1, 2]
    assert body["max_tokens"] == 8
