"""A model's chat template: from messages to a prompt."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from scheduler.adapters.template_sandbox import Budget, TemplateSandbox
from scheduler.core.chat import ChatMessage, PromptPart
from scheduler.errors import InvalidConfiguration, RequestRefused

OPEN, CLOSE = "\ufdd0", "\ufdd1"
"""Unicode noncharacters, meant for a program's own use: they enclose what looks like a special token in a message."""

CONTINUED = "OCTAVO CONTINUES HERE "
MAX_SHOWN_CHARS = 500


class JinjaChatTemplate:
    """Implements ``ChatTemplate``. Safe to use from several threads.

    The template's own special tokens are special; the same characters in a message are text. So nobody can end their
    turn and speak as somebody else.
    """

    def __init__(
        self,
        source: str,
        variables: Mapping[str, str] | None = None,
        special_tokens: Collection[str] = (),
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._sandbox = TemplateSandbox(now)
        try:
            self._template = self._sandbox.bounded(source)
        except jinja2.TemplateError as error:
            raise InvalidConfiguration(f"the chat template is unusable: {error}") from None
        self._variables = dict(variables or {})
        self._knows_developer = "developer" in source
        longest_first = sorted(filter(None, special_tokens), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def render(
        self, messages: Sequence[ChatMessage], *, add_generation_prompt: bool, continue_final_message: bool
    ) -> tuple[PromptPart, ...]:
        """The prompt, in pieces. Raises ``RequestRefused`` with the template's own words."""
        rows = [self._row(message) for message in messages]
        if continue_final_message:
            rows[-1]["content"] += CONTINUED
        text = self._text(rows, add_generation_prompt=add_generation_prompt)
        return _parts(_cut(text) if continue_final_message else text)

    def _row(self, message: ChatMessage) -> dict[str, str]:
        role = message.role
        if role == "developer" and not self._knows_developer:
            role = "system"
        row = {"role": role, "content": self._marked(message.content)}
        for name in ("name", "tool_call_id"):
            if (value := getattr(message, name)) is not None:
                row[name] = self._marked(value)
        return row

    def _marked(self, text: str) -> str:
        text = text.replace(OPEN, "").replace(CLOSE, "")
        return self._special.sub(lambda match: f"{OPEN}{match[0]}{CLOSE}", text)

    def _text(self, rows: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
        variables: dict[str, Any] = {
            **self._variables,
            "messages": rows,
            "add_generation_prompt": add_generation_prompt,
            "tools": None,
            "documents": None,
        }
        try:
            return self._sandbox.render_bounded(self._template, variables, Budget())
        except Exception as error:  # noqa: BLE001 - a template's expressions can raise anything
            reason = str(error)[:MAX_SHOWN_CHARS] or type(error).__name__
            raise RequestRefused(
                f"messages: the model's chat template refuses them: {reason}",
                param="messages",
                code="chat_template_refused",
            ) from None


def _cut(text: str) -> str:
    """The text up to where the last message ends, without what the template puts after it."""
    end = text.rfind(CONTINUED.rstrip())
    if end < 0:
        raise RequestRefused(
            "continue_final_message is true, but the model's chat template leaves the last message out",
            param="continue_final_message",
        )
    spacing_is_kept = text.startswith(CONTINUED, end)
    return text[:end] if spacing_is_kept else text[:end].rstrip()


def _parts(text: str) -> tuple[PromptPart, ...]:
    """Whole marks become literal pieces; of a mark that the template tore apart, nothing joins into a special token."""
    pieces = re.split(f"{OPEN}([^{OPEN}{CLOSE}]*){CLOSE}", text)
    parts: list[PromptPart] = []
    for index, piece in enumerate(pieces):
        if index % 2:
            parts.append(PromptPart(piece, is_literal=True))
        else:
            parts += [PromptPart(torn) for torn in re.split(f"[{OPEN}{CLOSE}]", piece) if torn]
    return tuple(parts)
