"""What may a template do, and how much of it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import wraps
from typing import Any, Literal

from jinja2 import StrictUndefined, UndefinedError, nodes, pass_context, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension
from jinja2.filters import do_round, make_attrgetter
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_CHARACTERS = 1_000_000
MAX_STEPS = 100_000
OWN = "self_"
"""Jinja keeps `self` for its own blocks, so the name is rewritten before it is parsed."""
BUILTIN = ("dict", "namespace")
_STEPS = "steps_"
_COUNTED = "counted_"
_MAX_BITS = 4096
_ITEM = 10
"""What anything that is not text counts; it bounds how many things a list may hold, too."""
_UNBOUNDED = frozenset(
    {"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map", "translate", "to_bytes"}
)
_UNBOUNDED_FILTERS = (
    "batch",
    "center",
    "format",
    "indent",
    "pprint",
    "slice",
    "tojson",
    "urlize",
    "wordwrap",
    "xmlattr",
)


class Steps:
    """What one rendering may still do; loops, calls and `range()` share it, or nesting would multiply the limit."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise UndefinedError(f"the template does more than {MAX_STEPS} steps: range(), loops and calls count")


class _OwnSelf(Extension):
    def filter_stream(self, stream: TokenStream) -> Iterable[Token]:
        before = ""
        for token in stream:
            renamed = token.type == "name" and token.value == "self" and before != "dot"
            yield Token(token.lineno, "name", OWN) if renamed else token
            before = token.type


class _Generator(CodeGenerator):
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802  # Jinja's name
        """`a ~ b`: Jinja offers no other way to have a say in it."""
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class Sandbox(ImmutableSandboxedEnvironment):
    """Nothing made in a template is larger than the query that it may become."""

    code_generator_class = _Generator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    @staticmethod
    def concat(parts: Iterable[object]) -> str:
        """Joins what `~`, macros and `{% set %}` blocks are made of."""
        return _joined(parts)

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            extensions=[_OwnSelf],
            keep_trailing_newline=True,
            finalize=_printable,
        )
        kept = {name: self.globals[name] for name in BUILTIN}
        self.globals.clear()
        self.globals.update(kept)
        for name in _UNBOUNDED_FILTERS:
            self.filters.pop(name, None)
        self.filters |= {name: _bounded(made) for name, made in self.filters.items()}
        self.filters |= {"join": _join, "replace": _replace, "round": _round, "sum": _sum, _COUNTED: _counted}

    def _generate(self, source: nodes.Template, *arguments: Any, **more: Any) -> str:
        for loop in source.find_all(nodes.For):
            loop.iter = nodes.Filter(loop.iter, _COUNTED, [], [], None, None, lineno=loop.lineno, environment=self)
        return super()._generate(source, *arguments, **more)

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
        return _printable(made) if isinstance(made, str | bytes) else made

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _UNBOUNDED and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Never: a width of a billion needs no attribute that is unsafe, so `format` is refused like the others."""
        return None


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


def _bounded(made: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that takes and gives only what could be printed."""

    @wraps(made)
    def limited(*arguments: Any, **more: Any) -> Any:
        for one in (*arguments, *more.values()):
            _check(_weight(one))
        found = made(*arguments, **more)
        return _printable(found) if isinstance(found, str) else found

    return limited
