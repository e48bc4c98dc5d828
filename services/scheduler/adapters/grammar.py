"""Grammars by the `llguidance` library: which tokens may come next, in about 50 µs."""

import json
import logging
from collections.abc import Collection

import tokenizers
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from scheduler.core.constraint import ConstraintState, Grammar, GrammarKind
from scheduler.errors import RequestRefused

MAX_GRAMMAR_CHARS = 64 * 1024
MAX_SHOWN_CHARS = 500
JSON_SPACE = r"(\x20|\x0A\x20{0,24})"
"""Between the parts of JSON: a space, or a new line with its indentation; never without end."""

logger = logging.getLogger(__name__)


class LlguidanceCompiler:
    """Implements ``GrammarCompiler`` for one vocabulary. Safe to use from several threads."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._tokenizer = tokenizer
        self._limits = LLParserLimits(verbose_errors=False)  # its reports go to the log, where no prompt belongs

    def compile(self, grammar: Grammar) -> "LlguidanceConstraint":
        """Takes milliseconds, and at most some 100. Raises ``RequestRefused`` with the library's reason."""
        if len(grammar.text) > MAX_GRAMMAR_CHARS:
            raise RequestRefused(
                f"{grammar.param} has {len(grammar.text)} characters, but the limit is {MAX_GRAMMAR_CHARS}",
                param=grammar.param,
                code="grammar_too_large",
            )
        try:
            matcher = LLMatcher(self._tokenizer, _source(grammar), log_level=0, limits=self._limits)
        except ValueError as error:
            raise _refused(grammar, str(error)) from None
        if matcher.is_error():
            raise _refused(grammar, matcher.get_error())
        constraint = LlguidanceConstraint(matcher, self._tokenizer.vocab_size)
        if constraint.look() is not ConstraintState.OPEN:
            raise _refused(grammar, f"it allows no output ({matcher.stop_reason()})")
        return constraint


class LlguidanceConstraint:
    """Implements ``TokenConstraint``. The mask is made ahead, so that a failure of the library is a state."""

    __slots__ = ("_mask", "_matcher", "_num_bytes")

    def __init__(self, matcher: LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._num_bytes = -(-vocab_size // 8)
        self._mask = b""

    @property
    def mask(self) -> bytes:
        """One bit for each token of the vocabulary, lowest first."""
        return self._mask

    def advance(self, token_id: int) -> ConstraintState:
        """Takes the next token and says what may follow."""
        self._matcher.consume_token(token_id)
        return self.look()

    def fork(self) -> "LlguidanceConstraint":
        """Another one that stands at the same place."""
        fork = LlguidanceConstraint(self._matcher.deep_copy(), 8 * self._num_bytes)
        fork._mask = self._mask
        return fork

    def look(self) -> ConstraintState:
        """Makes the mask for where the output stands."""
        matcher = self._matcher
        if not matcher.is_stopped():
            self._mask = matcher.compute_bitmask()[: self._num_bytes]
        if matcher.is_error():
            logger.warning("a grammar cannot go on: %s", matcher.get_error())
            return ConstraintState.BROKEN
        return ConstraintState.COMPLETE if matcher.is_stopped() else ConstraintState.OPEN


def load_grammar_compiler(tokenizer: tokenizers.Tokenizer, eos_token_ids: Collection[int]) -> LlguidanceCompiler | None:
    """A compiler for a vocabulary; takes about a second.

    ``None`` where no token ends an output, or where the library cannot read the vocabulary; the log says why.
    """
    if not eos_token_ids:
        logger.warning("outputs cannot be held to grammars: the model names no end-of-sequence token")
        return None
    description = json.loads(tokenizer.to_str()) | {"truncation": None, "padding": None}
    num_tokens = tokenizer.get_vocab_size(with_added_tokens=True)
    try:
        library = LLTokenizer(json.dumps(description), n_vocab=num_tokens, eos_token=sorted(eos_token_ids))
    except ValueError as error:
        logger.warning("outputs cannot be held to grammars: %s", error)
        return None
    return LlguidanceCompiler(library)


def _source(grammar: Grammar) -> str:
    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            return LLMatcher.grammar_from_json_schema(grammar.text, overrides={"whitespace_pattern": JSON_SPACE})
        case GrammarKind.REGEX:
            return LLMatcher.grammar_from_regex(grammar.text)
        case GrammarKind.LARK:
            return LLMatcher.grammar_from_lark(grammar.text)


def _refused(grammar: Grammar, reason: str) -> RequestRefused:
    reason = reason.strip()[:MAX_SHOWN_CHARS]
    return RequestRefused(
        f"{grammar.param} cannot be used as a grammar: {reason}", param=grammar.param, code="invalid_grammar"
    )
