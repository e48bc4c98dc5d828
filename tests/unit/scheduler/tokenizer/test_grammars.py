"""Grammars on every kind of vocabulary that is loaded."""

import pytest
import tokenizers
from tokenizers import models

from scheduler.adapters.grammar import load_grammar_compiler
from scheduler.adapters.tokenizer import load_tokenizer
from scheduler.core.constraint import ConstraintState, Grammar, GrammarKind


@pytest.mark.parametrize("kind", ["byte_level", "sentencepiece"])
def test_the_tokens_of_a_text_are_allowed_one_after_the_other(kind, request):
    tokenizer = load_tokenizer(request.getfixturevalue(kind)())
    compiler = load_grammar_compiler(tokenizer.library_tokenizer, tokenizer.eos_token_ids)
    constraint = compiler.compile(Grammar(GrammarKind.REGEX, " ?hello é!", "regex"))
    *beginning, last = tokenizer.encode("hello é!", add_special_tokens=False)
    for token_id in beginning:
        assert constraint.mask[token_id // 8] >> token_id % 8 & 1
        assert constraint.advance(token_id) is ConstraintState.OPEN
    assert constraint.advance(last) is ConstraintState.COMPLETE


def test_a_vocabulary_that_the_library_cannot_read_has_no_grammars(caplog):
    words = tokenizers.Tokenizer(models.WordLevel({"a": 0, "<end>": 1}, unk_token="a"))
    assert load_grammar_compiler(words, {1}) is None
    assert "cannot be held to grammars" in caplog.text
