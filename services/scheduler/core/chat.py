"""A conversation, and the prompt that a model's template makes of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """What one side said. ``name`` tells speakers of the same role apart; ``tool_call_id`` says what a tool answers."""

    role: str
    content: str
    name: str | None = None
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A piece of a rendered prompt. In a literal piece, what looks like a special token is plain text."""

    text: str
    is_literal: bool = False
