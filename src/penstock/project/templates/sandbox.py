"""What may a template do, and how much of it?

Jinja's own sandbox, and two limits. Nothing made in a template is larger than the query that it may become, so that no
single operation takes long; and a rendering has so many steps and seconds. Python cannot stop a thread, so both are
looked at wherever Jinja asks us: calls, operators, filters, tests, and what is printed. It does not ask about loops,
lists, comparisons and `~`; there a filter of ours is put into the tree before it is compiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial, wraps
from threading import local
from typing import Any, Literal, NoReturn

from jinja2 import StrictUndefined, Undefined, UndefinedError, nodes, pass_environment
from jinja2.exceptions import SecurityError
from jinja2.filters import do_round, make_attrgetter
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from penstock.project.reading.limits import MAX_CHARACTERS, MAX_RENDER_SECONDS
from penstock.project.templates.lookups import MAX_STEPS

OWN = "self_"
"""Jinja keeps `self` for its own blocks, so the name is rewritten before it is compiled."""
BUILTIN = ("dict", "namespace")
_ITEM = 10
"""What anything but text and long numbers counts; it bounds how many things a list may hold, too."""
_PER_STEP = 10_000
"""Characters: a list of many large texts would fill the memory before it is there to be looked at."""
_OF_JINJA = ("_loop_vars", "_block_vars")
"""Arguments of a call that a template did not write."""
_REMOVED_METHODS = frozenset(
    {"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map", "translate", "to_bytes"}
)
_REMOVED_FILTERS = (
    "batch", "center", "format", "indent", "pprint", "slice", "tojson", "urlize", "wordwrap", "xmlattr",
    "random",  # is small enough, but one query would differ from the next
)  # fmt: skip


class _Budget(local):
    """What the rendering in this thread may still do."""

    steps, end = 0, 0.0

    def begin(self) -> None:
        self.steps, self.end = MAX_STEPS, time.thread_time() + MAX_RENDER_SECONDS

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise UndefinedError(f"the template does more than {MAX_STEPS} steps: range(), loops and calls count")
        if time.thread_time() > self.end:
            raise UndefinedError(f"the template works for more than {MAX_RENDER_SECONDS:g} second")


BUDGET = _Budget()


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=True,
            finalize=_bounded,
            optimized=False,  # else constants are worked out while compiling, where nobody looks at the clock
        )
        self.globals.clear()
        self.globals |= {"dict": dict, "namespace": _Namespace}
        for name in _REMOVED_FILTERS:
            self.filters.pop(name, None)
        self.filters |= {"join": _join, "replace": _replace, "round": _round}
        self.filters |= {name: _limited(function) for name, function in self.filters.items()}
        tests: dict[str, Any] = dict(self.tests)
        self.tests |= {name: _limited(function) for name, function in tests.items()}
        self.filters |= {function.__name__: function for function in (_bounded, _counted, _joined)}

    @staticmethod
    def concat(parts: Iterable[object]) -> str:
        """Joins what macros and `{% set %}` blocks are made of."""
        return _joined(parts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        large = operator == "**" and numbers and (abs(left) > 2**32 or abs(right) > 64)
        if large or (operator != "+" and not numbers):
            raise UndefinedError(f"{operator} is for small numbers here")
        return _bounded(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805  # as Jinja has it
        BUDGET.spend(1)
        for argument in (*args, *(value for key, value in kwargs.items() if key not in _OF_JINJA)):
            _bounded(argument)  # a macro has all of them in one list, and may pass it on twice
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name in ("join", "replace"):
            text = str(owner)
            __obj = partial(_joined, between=text) if name == "join" else partial(_replace, text)
        result = super().call(__context, __obj, *args, **kwargs)
        return _bounded(result) if isinstance(result, str | bytes | dict) else result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        removed = attr in _REMOVED_METHODS or (isinstance(obj, bytes) and attr in ("join", "replace"))
        return not removed and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """At once, and in plain words."""
        raise SecurityError(f"{attribute!r} of {type(obj).__name__} values is not for templates")

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Never: a width of a billion needs no attribute that is unsafe, so `format` is refused like the others."""
        return None


class _Namespace(Namespace):
    """One that shows nothing of what it holds: that may be itself, or other ones twice each."""

    def __repr__(self) -> str:
        return "<Namespace>"


class Guard(NodeTransformer):
    """Puts filters of ours where a template can do or make much without asking the sandbox."""

    def __init__(self, environment: Sandbox) -> None:
        self.environment = environment

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        super().generic_visit(node, *args, **kwargs)
        match node:
            case nodes.Name(name="self"):
                node.name = OWN
            case nodes.For():
                node.iter = self._filtered(node.iter, _counted)
            case nodes.Concat():
                return self._filtered(nodes.List(node.nodes, lineno=node.lineno), _joined)
            case nodes.List() | nodes.Tuple(ctx="load") | nodes.Dict() | nodes.Compare() if _is_computed(node):
                # a list of lists of lists doubles with every level, and so does the time to compare it or to hash it
                return self._filtered(node, _bounded)
        return node

    def _filtered(self, node: nodes.Node, function: Callable[..., object]) -> nodes.Filter:
        return nodes.Filter(
            node, function.__name__, [], [], None, None, lineno=node.lineno, environment=self.environment
        )


def _is_computed(node: nodes.Node) -> bool:
    return any(node.find_all((nodes.Name, nodes.Filter, nodes.Getattr, nodes.Getitem)))


def _size(value: object) -> int:
    """About how many characters `value` has as text; it is looked into only until it is too much."""
    total, waiting = 0, [value]
    while waiting and total <= MAX_CHARACTERS:
        part = waiting.pop()
        if isinstance(part, str | bytes):
            total += len(part)
            continue
        total += max(_ITEM, part.bit_length() // 3) if isinstance(part, int) else _ITEM
        if isinstance(part, Undefined):
            if part is not value:
                str(part)  # raises: the list that holds it would be printed with the word Undefined
        elif isinstance(part, Collection) and not isinstance(part, range):
            if len(part) * _ITEM > MAX_CHARACTERS:
                return MAX_CHARACTERS + 1
            waiting += part
            waiting += part.values() if isinstance(part, dict) else ()
    return total


def _check(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise UndefinedError(f"the template makes more than {MAX_CHARACTERS} characters")


def _bounded(value: Any) -> Any:
    size = _size(value)
    _check(size)
    BUDGET.spend(size // _PER_STEP)
    return value


def _limited(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that gives only what could be printed."""

    @wraps(function)
    def limited(*arguments: Any, **options: Any) -> Any:
        return _bounded(function(*arguments, **options))

    return limited


def _counted(values: Iterable[object]) -> Iterator[object]:
    """What a loop goes through."""
    for value in values:
        BUDGET.spend(1)
        yield value


def _joined(parts: Iterable[object], between: str = "") -> str:
    texts: list[str] = []
    size = 0
    for part in parts:
        texts.append(str(_bounded(part)))
        size += len(texts[-1]) + len(between)
        _check(size)
    return between.join(texts)


@pass_environment
def _join(environment: Sandbox, value: Iterable[object], d: str = "", attribute: str | None = None) -> str:
    parts = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return _joined(parts, str(d))


def _replace(text: object, old: str, new: str, count: int | None = None) -> str:
    plain, most = str(text), -1 if count is None else count
    replaced = plain.count(old) if most < 0 else min(plain.count(old), most)
    _check(len(plain) + replaced * len(new))
    return plain.replace(old, new, most)


def _round(value: float, precision: int = 0, method: Literal["common", "ceil", "floor"] = "common") -> float:
    if abs(precision) > 64:
        raise UndefinedError("round() keeps 64 places at most")
    return do_round(value, precision, method)
