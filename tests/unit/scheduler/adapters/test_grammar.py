"""Masks: what may come next, where the output may end, and what is refused."""

import json
import random

import pytest

from scheduler.adapters.grammar import MAX_GRAMMAR_CHARS, LlguidanceCompiler, load_grammar_compiler
from scheduler.adapters.tokenizer import ModelTokenizer, load_tokenizer
from scheduler.core.constraint import ConstraintState, Grammar, GrammarKind, TokenConstraint
from scheduler.errors import RequestRefused

OPEN, COMPLETE = ConstraintState.OPEN, ConstraintState.COMPLETE


@pytest.fixture(scope="module")
def tokenizer(model_path) -> ModelTokenizer:
    return load_tokenizer(model_path)


@pytest.fixture(scope="module")
def compiler(tokenizer) -> LlguidanceCompiler:
    return load_grammar_compiler(tokenizer.library_tokenizer, tokenizer.eos_token_ids)


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text, "regex")


def allowed(constraint: TokenConstraint) -> set[int]:
    return {i for i in range(8 * len(constraint.mask)) if constraint.mask[i // 8] >> (i % 8) & 1}


def drawn(constraint: TokenConstraint, seed: int, num_tokens: int = 400) -> list[int]:
    """A random output."""
    choose, token_ids = random.Random(seed), []
    while len(token_ids) < num_tokens:
        token_ids.append(choose.choice(sorted(allowed(constraint))))
        if constraint.advance(token_ids[-1]) is not OPEN:
            return token_ids
    raise AssertionError("it does not end")


def test_a_mask_has_a_bit_for_each_token_and_allows_the_end_where_the_grammar_accepts(compiler, tokenizer):
    constraint = compiler.compile(regex("(yes|no)!*"))
    (eos,) = tokenizer.eos_token_ids
    assert len(constraint.mask) == -(-tokenizer.vocab_size // 8)
    assert eos not in allowed(constraint)
    assert allowed(constraint) == {tokenizer.encode(text)[0] for text in ("y", "ye", "yes", "n", "no")}
    assert constraint.advance(tokenizer.encode("yes")[0]) is OPEN
    assert eos in allowed(constraint)
    assert constraint.advance(eos) is COMPLETE


def test_a_grammar_that_forces_the_end_is_complete_without_an_end_token(compiler, tokenizer):
    assert compiler.compile(regex("yes")).advance(tokenizer.encode("yes")[0]) is COMPLETE


def test_forks_go_their_own_ways(compiler, tokenizer):
    start = compiler.compile(regex("[ab]+c"))
    a, b, c = (tokenizer.encode(letter)[0] for letter in "abc")
    left, right = start.fork(), start.fork()
    beginning = allowed(start)
    assert left.advance(a) is OPEN
    later = left.fork()
    assert left.advance(c) is COMPLETE
    assert right.advance(b) is OPEN
    assert later.advance(b) is OPEN
    assert allowed(start) == allowed(start.fork()) == beginning


@pytest.mark.parametrize("seed", range(3))
def test_random_output_of_a_schema_is_json_that_fits_it(compiler, tokenizer, seed):
    schema = {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 3, "maximum": 70}, "kind": {"enum": ["a b", None]}},
        "required": ["size", "kind"],
        "additionalProperties": False,
    }
    constraint = compiler.compile(Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema), "response_format"))
    value = json.loads(tokenizer.decode(drawn(constraint, seed)))
    assert value.keys() == {"size", "kind"}
    assert 3 <= value["size"] <= 70
    assert value["kind"] in ("a b", None)


def test_a_lark_grammar_is_followed(compiler, tokenizer):
    grammar = Grammar(GrammarKind.LARK, 'start: "(" INT ("+" INT)? ")"\nINT: /[0-9]{1,3}/', "grammar")
    text = tokenizer.decode(drawn(compiler.compile(grammar), seed=1))
    assert text[0] + text[-1] == "()"
    assert all(number.isdigit() for number in text[1:-1].split("+"))


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (GrammarKind.REGEX, "a(b", "unclosed group"),
        (GrammarKind.REGEX, "(?<=a)b", "look-behind"),
        (GrammarKind.REGEX, r"[^\s\S]", "it allows no output"),
        (GrammarKind.LARK, "start: other", 'unknown name: "other"'),
        (GrammarKind.LARK, "start: " + "(" * 20_000 + '"a"' + ")" * 20_000, "too deeply nested"),
        (GrammarKind.JSON_SCHEMA, '{"type": "strange"}', "strange"),
        (GrammarKind.JSON_SCHEMA, '{"type": "array", "uniqueItems": true}', "uniqueItems"),
        (GrammarKind.JSON_SCHEMA, '{"$ref": "http://elsewhere/schema"}', "does not fetch"),
        (GrammarKind.JSON_SCHEMA, '{"$ref": "#"}', "it allows no output"),
        (GrammarKind.JSON_SCHEMA, "[" * 3000 + "]" * 3000, "recursion limit"),
    ],
)
def test_a_bad_grammar_is_refused_with_the_librarys_reason(compiler, kind, text, reason):
    with pytest.raises(RequestRefused, match="field cannot be used as a grammar") as refused:
        compiler.compile(Grammar(kind, text, "field"))
    assert reason in refused.value.message
    assert refused.value.param == "field"
    assert len(refused.value.message) < 600


def test_a_grammar_may_not_be_too_large(compiler):
    with pytest.raises(RequestRefused, match=f"regex has {MAX_GRAMMAR_CHARS + 1} characters, but the limit is"):
        compiler.compile(regex("a" * (MAX_GRAMMAR_CHARS + 1)))


def test_a_grammar_that_grows_beyond_the_limits_is_broken_and_says_so_without_its_text(compiler, tokenizer, caplog):
    constraint = compiler.compile(regex("yes"))
    assert constraint.advance(tokenizer.encode("no")[0]) is ConstraintState.BROKEN
    assert "cannot go on" in caplog.text
    assert "yes" not in caplog.text


def test_a_vocabulary_without_an_end_cannot_have_grammars(tokenizer):
    assert load_grammar_compiler(tokenizer.library_tokenizer, ()) is None
