"""Output that must follow a grammar, token by token."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class GrammarKind(Enum):
    """The language that a grammar is written in."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "grammar"


@dataclass(frozen=True, slots=True)
class Grammar:
    """``param`` is the field of the request that has it."""

    kind: GrammarKind
    text: str
    param: str


class ConstraintState(Enum):
    """What may follow the tokens so far."""

    OPEN = "open"  # tokens of the mask
    COMPLETE = "complete"  # nothing: the output is whole
    BROKEN = "broken"  # unknown: the grammar grew beyond the limits


class TokenConstraint(Protocol):
    """Where an output stands in its grammar. One per sequence."""

    @property
    def mask(self) -> bytes:
        """The tokens that may come next while the state is ``OPEN``: bit ``i % 8`` of byte ``i // 8`` for token ``i``.

        End-of-sequence tokens are among them where the output may end.
        """

    def advance(self, token_id: int) -> ConstraintState:
        """Takes the next token and says what may follow."""

    def fork(self) -> "TokenConstraint":
        """Another one that stands at the same place."""
