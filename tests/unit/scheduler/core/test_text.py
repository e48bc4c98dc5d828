"""Incremental text: whole characters, once each, and nothing of a stop string."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.detokenizer import REPLACEMENT, Detokenizer, ends_within_character
from scheduler.core.stop_strings import StopStrings

TEXT = "a日本語 한글 é e\u0301 👩‍👩‍👧 🇫🇷 ok"


def decode_bytes(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode(errors="replace")


def decode_runs(token_ids: Sequence[int]) -> str:
    """As byte-fallback decoders do: a run of bytes that is not valid as a whole becomes U+FFFD, one per byte."""
    try:
        return bytes(token_ids).decode()
    except UnicodeDecodeError:
        return REPLACEMENT * len(token_ids)


def pieces(token_ids: Sequence[int], prompt: Sequence[int] = (), decode=decode_bytes) -> list[str]:
    completes_prompt = ends_within_character(prompt, lambda token_id: bytes([token_id]))
    detokenizer = Detokenizer(decode, prompt, completes_prompt=completes_prompt)
    return [*(detokenizer.push(token_id) for token_id in token_ids), detokenizer.flush()]


@pytest.mark.parametrize("decode", [decode_bytes, decode_runs])
def test_characters_split_over_tokens_come_out_whole_and_once(decode):
    out = pieces(TEXT.encode(), decode=decode)
    assert not any(REPLACEMENT in piece for piece in out)
    assert "".join(out) == TEXT


@given(st.text(max_size=40), st.integers(0, 20))
def test_any_text_after_any_prompt_comes_out_as_it_is(text: str, split: int):
    prompt, output = text[:split].encode(), text[split:].encode()
    assert "".join(pieces(output, prompt)) == text[split:]


def test_a_character_that_the_prompt_begins_comes_out_with_the_output():
    emoji = "😀".encode()
    for split in range(1, 4):
        assert "".join(pieces(emoji[split:] + b"!", b"hi" + emoji[:split])) == "😀!"


@pytest.mark.parametrize("prompt", [REPLACEMENT, "a" + REPLACEMENT, REPLACEMENT * 3])
def test_a_replacement_character_of_the_prompt_is_not_repeated(prompt):
    assert "".join(pieces(b"ok", prompt.encode())) == "ok"


def test_a_character_cut_off_at_the_end_is_left_out():
    assert "".join(pieces("né日".encode()[:-1])) == "né"


def test_invalid_bytes_do_not_hold_back_the_text_for_ever():
    out = pieces([0x80] * 20 + list(b"ok"))
    assert "".join(out[:-1]).endswith("ok")
    assert REPLACEMENT in "".join(out[:12])


def test_only_a_few_tokens_are_decoded_again():
    lengths = []

    def decode(token_ids: Sequence[int]) -> str:
        lengths.append(len(token_ids))
        return decode_bytes(token_ids)

    pieces(b"x" * 500, b"y" * 500, decode)
    assert max(lengths) <= 10


def through(stops: tuple[str, ...], parts: Sequence[str]) -> tuple[str, str | None]:
    matcher, out = StopStrings(stops), ""
    for part in parts:
        out += matcher.push(part)
        if matcher.matched is not None:
            return out, matcher.matched
    return out + matcher.flush(), None


def test_a_stop_string_over_several_tokens_is_never_emitted():
    assert through(("END",), ["one E", "N", "D two"]) == ("one ", "END")


def test_what_may_begin_a_stop_string_is_held_back_and_then_let_go():
    matcher = StopStrings(("END",))
    assert [matcher.push("x E"), matcher.push("N"), matcher.push("d")] == ["x ", "", "ENd"]


def test_held_back_text_is_flushed_at_the_end():
    assert through(("END",), ["one E", "N"]) == ("one EN", None)


def test_the_stop_string_that_is_complete_first_wins():
    assert through(("abcde", "cd"), ["abcde"]) == ("ab", "cd")
    assert through(("bc", "abc"), ["abc"]) == ("", "abc")


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(0, 30), max_size=8),
)
def test_the_outcome_does_not_depend_on_how_the_text_was_cut(text: str, stops: list[str], cuts: list[int]):
    edges = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    parts = [text[a:b] for a, b in pairwise(edges)]
    out, matched = through(tuple(stops), parts)
    assert (out, matched) == through(tuple(stops), list(text))
    assert not any(stop in out for stop in stops)
    assert text.startswith(out + (matched or ""))
