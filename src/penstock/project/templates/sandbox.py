"""What may a template do, and how much of it?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import wraps
from types import FrameType
from typing import Any, Literal, NoReturn

from jinja2 import StrictUndefined, Undefined, UndefinedError, nodes, pass_context, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import do_round, make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from penstock.project.reading.limits import MAX_CHARACTERS, MAX_RENDER_SECONDS
from penstock.project.templates.words import MAX_STEPS

OWN = "self_"
"""Jinja keeps `self` for its own blocks, so the name is rewritten before it is compiled."""
BUILTIN = ("dict", "namespace")
FILENAME = "<template>"
"""As Jinja calls what it compiles."""
_STEPS = "steps_"
_COUNTED = "counted_"
_JOINED = "joined_"
_WEIGHED = "weighed_"
_MAX_BITS = 4096
_ITEM = 10
"""What anything that is not text counts; it bounds how many things a list may hold, too."""
_UNBOUNDED = frozenset(
    {"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map", "translate", "to_bytes"}
)
_REMOVED_FILTERS = (
    "batch",
    "center",
    "format",
    "indent",
    "pprint",
    "random",  # the only one without a limit of its own that is gone: one query would differ from the next
    "slice",
    "tojson",
    "urlize",
    "wordwrap",
    "xmlattr",
)
_FOR_THE_UNDEFINED = frozenset({"default", "d", "defined", "undefined"})


class Steps:
    """What one rendering may still do; loops, calls and `range()` share it, or nesting would multiply the limit."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UndefinedError(f"the template does more than {MAX_STEPS} steps: range(), loops and calls count")


class Guard(NodeTransformer):
    """Puts our own functions where a template could make something large without calling any."""

    def __init__(self, environment: Sandbox) -> None:
        self.environment = environment

    def visit_Name(self, node: nodes.Name) -> nodes.Name:  # noqa: N802  # Jinja's names, here and below
        node.name = OWN if node.name == "self" else node.name
        return node

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = self._filtered(node.iter, _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return self._filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        return self._weighed(node, node.items)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        return self._weighed(node, node.items) if node.ctx == "load" else node

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        return self._weighed(node, [part for pair in node.items for part in (pair.key, pair.value)])

    def _weighed(self, node: nodes.Expr, parts: Iterable[nodes.Expr]) -> nodes.Expr:
        """A list of lists of lists doubles with every level, and so does the time to compare it or to hash it."""
        self.generic_visit(node)
        return node if all(isinstance(part, nodes.Const) for part in parts) else self._filtered(node, _WEIGHED)

    def _filtered(self, node: nodes.Node, name: str) -> nodes.Filter:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno, environment=self.environment)


class Sandbox(ImmutableSandboxedEnvironment):
    """Nothing made in a template is larger than the query that it may become."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    @staticmethod
    def concat(parts: Iterable[object]) -> str:
        """Joins what macros and `{% set %}` blocks are made of."""
        return _joined(parts)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=True,
            finalize=_printable,
            optimized=False,  # else constants are worked out while compiling, where nobody looks at the clock
        )
        kept = {name: self.globals[name] for name in BUILTIN}
        self.globals.clear()
        self.globals.update(kept)
        for name in _REMOVED_FILTERS:
            self.filters.pop(name, None)
        self.filters |= {name: _bounded(made, name) for name, made in self.filters.items()}
        tests: dict[str, Any] = dict(self.tests)
        self.tests |= {name: _bounded(made, name) for name, made in tests.items()}
        self.filters |= {"join": _join, "replace": _replace, "round": _round, "sum": _sum}
        self.filters |= {_COUNTED: _counted, _JOINED: _joined, _WEIGHED: _printable}

    def guarded(self, tree: nodes.Template) -> nodes.Template:
        """`tree`, ready to be compiled; it is changed in place."""
        Guard(self).visit(tree)
        return tree

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "+" and not numbers:
            _check(_weight(left) + _weight(right))
        elif not numbers or (operator == "**" and (abs(left) > 2**32 or abs(right) > 64)):
            raise UndefinedError(f"{operator} is for small numbers here")
        made = super().call_binop(context, operator, left, right)
        if isinstance(made, int) and made.bit_length() > _MAX_BITS:
            raise UndefinedError(f"{operator} is for small numbers here")
        return made

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as Jinja has it
        __context.parent[_STEPS].take(1)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str | bytes) and name in ("join", "replace"):
            # Jinja tells what it calls about loops and blocks, unless that does not listen
            said = {key: value for key, value in kwargs.items() if key not in ("_loop_vars", "_block_vars")}
            return (_joined_by if name == "join" else _replace)(str(owner), *args, **said)
        made = super().call(__context, __obj, *args, **kwargs)
        return _printable(made) if isinstance(made, str | bytes | dict) else made

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _UNBOUNDED and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """At once: an undefined value inside a list would be printed as such."""
        raise SecurityError(f"{attribute!r} of {type(obj).__name__} values is not for templates")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Never: a width of a billion needs no attribute that is unsafe, so `format` is refused like the others."""
        return None


@contextmanager
def deadline() -> Iterator[None]:
    """Ends what templates do in this thread after a second of work; between two of their lines, so each is bounded."""
    end, before = time.thread_time() + MAX_RENDER_SECONDS, sys.gettrace()

    def watched(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != FILENAME:
            return None
        if event == "line" and time.thread_time() > end:
            raise UndefinedError(f"the template works for more than {MAX_RENDER_SECONDS:g} second")
        return watched

    sys.settrace(watched)
    try:
        yield
    finally:
        sys.settrace(before)


def given(names: Mapping[str, object]) -> dict[str, object]:
    """`names` as Jinja gets them, and the steps of one rendering."""
    return {(OWN if name == "self" else name): value for name, value in names.items()} | {_STEPS: Steps()}


def _weight(value: object) -> int:
    """About how many characters `value` has as text; what holds others is looked into only until it is too much."""
    total, waiting = 0, [value]
    while waiting and total <= MAX_CHARACTERS:
        one = waiting.pop()
        total += len(one) if isinstance(one, str | bytes) else _ITEM
        if isinstance(one, dict | list | tuple | set | frozenset):
            if len(one) * _ITEM > MAX_CHARACTERS:
                return MAX_CHARACTERS + 1
            waiting += one
            waiting += one.values() if isinstance(one, dict) else ()
        elif isinstance(one, Undefined) and one is not value:
            str(one)  # raises: the list that holds it would be printed with the word Undefined
    return total


def _check(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise UndefinedError(f"the template makes more than {MAX_CHARACTERS} characters")


def _printable(value: Any) -> Any:
    _check(_weight(value))
    return value


def _joined(parts: Iterable[object], between: str = "") -> str:
    found: list[str] = []
    size = 0
    for part in parts:
        text = str(_printable(part))
        size += len(text) + len(between)
        _check(size)
        found.append(text)
    return between.join(found)


def _joined_by(between: str, parts: Iterable[object]) -> str:
    return _joined(parts, between)


@pass_environment
def _join(environment: Sandbox, value: Iterable[object], d: str = "", attribute: str | None = None) -> str:
    parts = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return _joined(parts, str(_printable(d)))


def _replace(text: object, old: str, new: str, count: int | None = None) -> str:
    plain, most = str(_printable(text)), -1 if count is None else count
    found = plain.count(old) if most < 0 else min(plain.count(old), most)
    _check(len(plain) + found * len(new))
    return plain.replace(old, new, most)


def _round(value: float, precision: int = 0, method: Literal["common", "ceil", "floor"] = "common") -> float:
    if abs(precision) > 64:
        raise UndefinedError("round() keeps 64 places at most")
    return do_round(value, precision, method)


@pass_environment
def _sum(environment: Sandbox, values: Iterable[Any], attribute: str | int | None = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):
        raise UndefinedError("sum() is for numbers here")
    return sum(values if attribute is None else map(make_attrgetter(environment, attribute), values), start)


@pass_context
def _counted(context: Context, values: Iterable[object]) -> Iterable[object]:
    """`values` of a loop; each takes a step."""
    steps: Steps = context.parent[_STEPS]
    if isinstance(values, Sized):
        steps.take(len(values))
        return values
    return _each(values, steps)


def _each(values: Iterable[object], steps: Steps) -> Iterator[object]:
    for value in values:
        steps.take(1)
        yield value


def _bounded(made: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A filter or test that takes and gives only what could be printed."""
    if name in _FOR_THE_UNDEFINED:
        return made

    @wraps(made)
    def limited(*arguments: Any, **more: Any) -> Any:
        for one in (*arguments, *more.values()):
            _check(_weight(one))
        return _printable(made(*arguments, **more))

    return limited
