"""How is a template turned into text, safely?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes

from penstock.errors import ProjectError
from penstock.project.problems import did_you_mean
from penstock.project.sandbox import BUILTIN, MAX_CHARACTERS, MAX_STEPS, OWN, Sandbox, given


class TemplateProblem(Exception):  # noqa: N818  # becomes a ProjectError once file and line are known
    """A template that cannot be rendered; the line counts from the template's first."""

    def __init__(self, message: str, line: int) -> None:
        self.message, self.line = message, line
        super().__init__(message)


class Names:
    """A few names in a template; a wrong one is an error that says which are there."""

    __slots__ = ("_label", "_values")
    _label: str
    _values: Mapping[str, object]

    def __init__(self, label: str, values: Mapping[str, object]) -> None:
        self._label, self._values = label, values

    def __getitem__(self, name: str) -> object:
        if name not in self._values:
            known = ", ".join(self._values) or "nothing"
            raise UndefinedError(
                f"{self._label} has no {name!r}{did_you_mean(str(name), self._values) or f'; it has {known}'}"
            )
        value = self._values[name]
        if isinstance(value, Missing):
            raise UndefinedError(value.why)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __str__(self) -> str:
        raise UndefinedError(f"{self._label} is not a value; use one of {', '.join(self._values)}")


class Missing:
    """A name that exists, but not here."""

    __slots__ = ("why",)

    def __init__(self, why: str) -> None:
        self.why = why


class Span(Names):
    """`bounds`, and `range`, which is Jinja's counting function too."""

    __slots__ = ("_left",)
    _left: int

    def __init__(self, label: str, values: Mapping[str, object]) -> None:
        super().__init__(label, values)
        self._left = MAX_STEPS

    def __call__(self, *arguments: int) -> range:
        steps = range(*arguments)
        # Counted over the whole rendering, or nested loops would multiply a limit that each of them keeps.
        self._left -= len(steps)
        if self._left < 0:
            raise UndefinedError(f"range() counts further than {MAX_STEPS} steps in one template")
        return steps


def rendered(source: str, names: Mapping[str, object]) -> str:
    """`source` as text; whatever goes wrong is a TemplateProblem."""
    template = _parsed(source)[0]
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(given(names)):
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise TemplateProblem(f"the template makes more than {MAX_CHARACTERS} characters", 1)
            pieces.append(piece)
    except (TemplateProblem, ProjectError):
        raise
    except UndefinedError as error:
        raise TemplateProblem(_undefined(error, names), _line()) from None
    except Exception as error:
        # A template is the author's program: any of its failures is the author's to mend.
        raise TemplateProblem(f"the template fails: {error or type(error).__name__}", _line()) from None
    return "".join(pieces)


@lru_cache(maxsize=1024)
def names_used(source: str) -> frozenset[str]:
    """The names the template takes from outside, in whatever branch they stand."""
    tree = _parsed(source)[1]
    found = meta.find_undeclared_variables(tree) - set(BUILTIN)
    return frozenset("self" if name == OWN else name for name in found)


def name_line(source: str, name: str) -> int:
    wanted = OWN if name == "self" else name
    lines = [node.lineno for node in _parsed(source)[1].find_all(nodes.Name) if node.name == wanted]
    return min(lines, default=1)


def members_used(source: str, name: str) -> frozenset[str] | None:
    """X of every `name.X` and `name['X']`; None when `name` is used in another way too."""
    tree, wanted = _parsed(source)[1], OWN if name == "self" else name
    total = sum(1 for node in tree.find_all(nodes.Name) if node.name == wanted)
    found = [
        member
        for kind in (nodes.Getattr, nodes.Getitem)
        for node in tree.find_all(kind)
        if (member := _member(node, wanted)) is not None
    ]
    return frozenset(found) if len(found) == total else None


def constants_given(source: str, function: str) -> frozenset[str] | None:
    """The first arguments that `function` is called with; None when they are not all constants."""
    total = sum(1 for node in _parsed(source)[1].find_all(nodes.Name) if node.name == function)
    found = [text for text, _, _ in calls(source, function)]
    return frozenset(found) if len(found) == total else None


def calls(source: str, function: str) -> Iterator[tuple[str, bool, int]]:
    """Each call of `function` with a constant first argument: that, whether `all=True`, and the line."""
    for node in _parsed(source)[1].find_all(nodes.Call):
        if not (isinstance(node.node, nodes.Name) and node.node.name == function and node.args):
            continue
        argument = node.args[0]
        if isinstance(argument, nodes.Const) and isinstance(argument.value, str):
            yield argument.value, any(k.key == "all" and _is_true(k.value) for k in node.kwargs), node.lineno


def _is_true(node: nodes.Expr) -> bool:
    return isinstance(node, nodes.Const) and node.value is True


def _member(node: nodes.Expr, name: str) -> str | None:
    match node:
        case nodes.Getattr(node=nodes.Name(name=owner), attr=str(member)) if owner == name:
            return member
        case nodes.Getitem(node=nodes.Name(name=owner), arg=nodes.Const(value=str(member))) if owner == name:
            return member
        case _:
            return None


def _undefined(error: UndefinedError, names: Mapping[str, object]) -> str:
    message = str(error)
    if message.endswith("is undefined"):
        name = message.split("'")[1] if "'" in message else message
        return f"the template uses {name!r}, which is undefined{did_you_mean(name, names)}"
    return message


def _line() -> int:
    """The template's line in the exception being handled; Jinja puts it into the traceback."""
    line, trace = 1, sys.exc_info()[2]
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@lru_cache(maxsize=1)
def _environment() -> Sandbox:
    return Sandbox()


@lru_cache(maxsize=1024)
def _parsed(source: str) -> tuple[Template, nodes.Template]:
    environment = _environment()
    try:
        return environment.from_string(source), environment.parse(source)
    except TemplateSyntaxError as error:
        raise TemplateProblem(f"not a valid template: {error.message}", error.lineno) from None
    except TemplateError as error:
        raise TemplateProblem(f"not a valid template: {error}", 1) from None
