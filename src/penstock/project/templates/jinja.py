"""How is a template that is a program turned into text, safely?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from threading import Lock

from jinja2 import Template, TemplateError, TemplateSyntaxError, UndefinedError, meta, nodes
from jinja2.parser import Parser

from penstock.errors import ProjectError
from penstock.project.reading.depth import deep
from penstock.project.reading.limits import (
    LONG_NUMBER,
    MAX_CHARACTERS,
    MAX_DIGITS,
    MAX_LOOPS,
    MAX_TREE,
    TOO_DEEP,
    long_number,
    too_deep,
)
from penstock.project.templates.lookups import Mistake, TemplateProblem, undefined
from penstock.project.templates.outline import Outline, Use
from penstock.project.templates.printed import only_printed
from penstock.project.templates.sandbox import BUDGET, BUILTIN, OWN, Guard, Sandbox

_SCOPES: tuple[type[nodes.Node], ...] = (
    nodes.For, nodes.Assign, nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.With, nodes.Block, nodes.Import,
    nodes.FromImport, nodes.Include, nodes.Extends, nodes.FilterBlock, nodes.ScopedEvalContextModifier,
)  # fmt: skip
"""Where a template may have names of its own."""


def rendered(source: str, names: Mapping[str, object]) -> str:
    """`source` as text; whatever goes wrong is a TemplateProblem."""
    template = _parsed(source).template()
    pieces: list[str] = []
    size = 0
    BUDGET.begin()
    try:
        for piece in template.generate({OWN if name == "self" else name: value for name, value in names.items()}):
            size += len(piece)
            if size > MAX_CHARACTERS:
                raise TemplateProblem(f"the template makes more than {MAX_CHARACTERS} characters", 1)
            pieces.append(piece)
    except (TemplateProblem, ProjectError):
        raise
    except Mistake as error:
        raise TemplateProblem(str(error), _line()) from None
    except UndefinedError as error:
        raise TemplateProblem(_undefined(error, names), _line()) from None
    except Exception as error:
        # A template is the author's program: any of its failures is the author's to mend.
        raise TemplateProblem(f"the template fails: {error or type(error).__name__}", _line()) from None
    return "".join(pieces)


def outline(source: str) -> Outline:
    return _parsed(source).outline


def _undefined(error: UndefinedError, names: Mapping[str, object]) -> str:
    message = str(error)
    if message.endswith("is undefined"):
        name = message.split("'")[1] if "'" in message else message
        return undefined(name, names)
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


class _Parsed:
    """A template that was read once; it is compiled when it is rendered first."""

    __slots__ = ("_lock", "_made", "outline")

    def __init__(self, tree: nodes.Template) -> None:
        self.outline = _outlined(tree)
        self._made: Template | nodes.Template = tree
        self._lock = Lock()

    def template(self) -> Template:
        with self._lock:
            if isinstance(self._made, nodes.Template):
                environment = _environment()
                with _readable():
                    Guard(environment).visit(self._made)
                    self._made = environment.from_string(self._made)
            return self._made


@lru_cache(maxsize=4096)
def _parsed(source: str) -> _Parsed:
    for line, said in ((too_deep(source), TOO_DEEP), (long_number(source), LONG_NUMBER)):
        if line is not None:
            raise TemplateProblem(f"not a valid template: {said}", line)
    with _readable():
        parser = Parser(_environment(), source)
    with _readable(lambda: parser.stream.current.lineno):
        return _Parsed(parser.parse())


@contextmanager
def _readable(line: Callable[[], int] = lambda: 1) -> Iterator[None]:
    """Whatever stops Jinja, or Python behind it, from reading a template is a TemplateProblem."""
    try:
        with deep():
            yield
    except TemplateSyntaxError as error:
        raise TemplateProblem(f"not a valid template: {error.message}", error.lineno) from None
    except (RecursionError, MemoryError, SyntaxError):  # not by brackets alone
        raise TemplateProblem(f"not a valid template: {TOO_DEEP}", line()) from None
    except (TemplateError, ValueError) as error:  # from constants, which Jinja works out while it reads them
        raise TemplateProblem(f"not a valid template: {error}", 1) from None


def _outlined(tree: nodes.Template) -> Outline:
    uses: dict[str, list[Use]] = {}
    scoped = False
    waiting: list[tuple[nodes.Node, nodes.Node | None, int, int]] = [(tree, None, 0, 0)]
    while waiting:
        node, above, depth, loops = waiting.pop()
        loops += isinstance(node, nodes.For)
        if depth > MAX_TREE or loops > MAX_LOOPS:
            said = f"{MAX_TREE} operators, filters and blocks, or {MAX_LOOPS} loops, stand inside each other at most"
            raise TemplateProblem(f"not a valid template: {said}", node.lineno)
        if isinstance(node, nodes.Const) and isinstance(node.value, int) and node.value >= 10**MAX_DIGITS:
            raise TemplateProblem(f"not a valid template: {LONG_NUMBER}", node.lineno)  # which may be in hexadecimal
        if isinstance(node, nodes.Name):
            uses.setdefault(node.name, []).append(_use(node, above))
        scoped = scoped or isinstance(node, _SCOPES)
        waiting += reversed([(child, node, depth + 1, loops) for child in node.iter_child_nodes()])
    names = meta.find_undeclared_variables(tree) if scoped else set(uses)
    lines = {name: min(use.line for use in named) for name, named in uses.items()}
    uses_by_name = {name: tuple(named) for name, named in uses.items()}
    return Outline(frozenset(names - set(BUILTIN)), lines, uses_by_name, only_printed(tree))


def _use(node: nodes.Name, above: nodes.Node | None) -> Use:
    match above:
        case nodes.Getattr(attr=str(member)) | nodes.Getitem(arg=nodes.Const(value=str(member))):
            return Use(node.lineno, member=member)
        case nodes.Call(node=callee, args=[nodes.Const(value=str(argument)), *_]) if callee is node:
            return Use(node.lineno, argument=argument)
        case _:
            return Use(node.lineno)
