"""A jinja2 environment for templates that nobody here wrote: no way out, and a budget for what is inside.

Python cannot interrupt a thread, so every loop iteration, call and growing operation draws on the budget of its
rendering. What has no use in a prompt and can take unlimited memory is missing.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes, pass_context
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 1_000_000
MAX_CHARS = 8 * 2**20
MAX_SECONDS = 2.0
MISSING_FILTERS = ("center", "format", "indent", "pprint", "random", "urlize", "wordwrap", "xmlattr")

_BUDGET = "octavo budget"  # no identifier, so no template can name it


class OverBudget(jinja2.TemplateError):
    """The rendering takes too long or too much."""


class Budget:
    """What one rendering may still do."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._num_steps = 0
        self._deadline = clock() + MAX_SECONDS

    def step(self) -> None:
        """Counts one step; looks at the clock now and then."""
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            raise OverBudget(f"it takes more than {MAX_STEPS} steps")
        if self._num_steps % 256 == 0 and self._clock() > self._deadline:
            raise OverBudget(f"it takes more than {MAX_SECONDS:g} s")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that Hugging Face's templates expect, with a budget. ``now`` gives the local time."""

    intercepted_binops = frozenset({"*", "**", "+", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, GenerationTag])
        for name in MISSING_FILTERS:
            del self.filters[name]
        self.filters |= {"tojson": _to_json, "octavo_counted": _counted, "octavo_joined": _joined}
        self.globals |= {
            "raise_exception": _raise,
            "strftime_now": lambda pattern: now().strftime(pattern[:100]),
        }
        for name in ("lipsum", "cycler", "joiner"):
            del self.globals[name]

    def bounded(self, source: str) -> jinja2.Template:
        """The compiled template. Raises ``jinja2.TemplateSyntaxError``."""
        tree = cast("nodes.Template", _Bounding(self).visit(self.parse(source)))
        return self.template_class.from_code(self, self.compile(tree), self.make_globals(None))

    def render_bounded(self, template: jinja2.Template, variables: dict[str, Any], budget: Budget) -> str:
        """The text. Raises ``OverBudget``, what the template raises, and what its expressions do."""
        pieces: list[str] = []
        num_chars = 0
        for piece in template.generate({**variables, _BUDGET: budget}):
            num_chars += len(piece)
            _check_size(num_chars)
            pieces.append(piece)
        return "".join(pieces)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, N805 - jinja2's
        """Counts the call; refuses numbers that only a bomb needs."""
        _budget_of(__context).step()
        for value in (*args, *kwargs.values()):
            if isinstance(value, int):
                _check_size(value)
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - jinja2's
        """Refuses what would grow too large before it does."""
        _budget_of(context).step()
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise OverBudget(f"the operator {operator} is not available")
        if operator == "*":
            _check_size(_size(left) * _size(right))
        elif not isinstance(left, int | float):
            _check_size(_size(left) + _size(right))
        return super().call_binop(context, operator, left, right)


class GenerationTag(Extension):
    """``{% generation %}`` marks what the model wrote, for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes inside the tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Bounding(NodeTransformer):
    """Has loops counted and joined strings measured."""

    def __init__(self, environment: jinja2.Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's
        self.generic_visit(node)
        node.iter = self._filtered(cast("nodes.Expr", node.iter), "octavo_counted")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - jinja2's
        self.generic_visit(node)
        return self._filtered(nodes.List(node.nodes, lineno=node.lineno), "octavo_joined")

    def _filtered(self, node: nodes.Expr, name: str) -> nodes.Filter:
        filtered = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        filtered.set_environment(self._environment)
        return filtered


@pass_context
def _counted(context: Context, values: Iterable[Any]) -> Iterator[Any]:
    budget = _budget_of(context)
    for value in values:
        budget.step()
        yield value


@pass_context
def _joined(context: Context, values: list[Any]) -> str:
    _budget_of(context).step()
    texts = [str(value) for value in values]
    _check_size(sum(map(len, texts)))
    return "".join(texts)


def _budget_of(context: Context) -> Budget:
    return cast("Budget", context.parent[_BUDGET])


def _size(value: object) -> int:
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, str | list | tuple | bytes) else 0


def _check_size(size: int) -> None:
    if size > MAX_CHARS:
        raise OverBudget(f"it makes more than {MAX_CHARS} characters")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and not 0 <= indent <= 16:
        raise OverBudget(f"tojson: indent is {indent}, but must be from 0 to 16")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
