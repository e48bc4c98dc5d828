"""A template that writes one line for each message, and a compiler of one-text grammars."""

from collections.abc import Sequence

from scheduler.core.chat import ChatMessage, PromptPart
from scheduler.core.constraint import ConstraintState, Grammar
from scheduler.errors import RequestRefused


class LineTemplate:
    def render(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool, continue_final_message: bool
    ) -> tuple[PromptPart, ...]:
        lines = [f"{message.name or message.role}: {message.content}" for message in messages]
        if messages[-1].content == "refuse":
            raise RequestRefused("messages: refused", param="messages")
        return (PromptPart("\n".join(lines) + ("\nassistant: " if add_generation_prompt else "")),)


class AnyText:
    """Allows every byte."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.mask = b"\xff" * 32

    def advance(self, token_id: int) -> ConstraintState:
        return ConstraintState.OPEN

    def fork(self) -> "AnyText":
        return self


class GrammarCompilerDouble:
    """Refuses grammars with a "(" in them."""

    def compile(self, grammar: Grammar) -> AnyText:
        if "(" in grammar.text:
            raise RequestRefused(f"{grammar.param} cannot be used", param=grammar.param, code="invalid_grammar")
        return AnyText(grammar)
