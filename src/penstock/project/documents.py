"""What does a YAML 1.2 text say, and on which line?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import yaml

from penstock.project.problems import Problems, Where

Plain: TypeAlias = str | int | float | bool | None

_Loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CONSTANTS: Mapping[str, Plain] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_PLACEHOLDER = re.compile(r"""(?<!["'\w])\{\{\s*[\w.]+\s*\}\}[\w.]*""")
_MAX_NODES = 50_000
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Scalar:
    value: Plain
    raw: str
    """As it was typed, without quotes."""
    where: Where


@dataclass(frozen=True, slots=True)
class Items:
    items: tuple[Node, ...]
    where: Where


@dataclass(frozen=True, slots=True)
class Table:
    entries: Mapping[str, Node]
    lines: Mapping[str, Where]
    """Where each key stands."""
    where: Where

    def get(self, key: str) -> Node | None:
        return self.entries.get(key)

    def at(self, key: str) -> Where:
        return self.lines.get(key, self.where)

    def without(self, *keys: str) -> Table:
        kept = {key: node for key, node in self.entries.items() if key not in keys}
        return Table(kept, {key: self.lines[key] for key in kept}, self.where)

    def having(self, key: str, node: Node, where: Where) -> Table:
        return Table({**self.entries, key: node}, {**self.lines, key: where}, self.where)


Node: TypeAlias = Scalar | Items | Table


def read_document(text: str, file: str, problems: Problems, first_line: int = 1) -> Node | None:
    """The one document in `text`, whose first line is line `first_line` of `file`; None when it cannot be read."""
    try:
        root = yaml.compose("\n" * (first_line - 1) + text, Loader=_Untyped)
    except yaml.YAMLError as error:
        _report(error, text, file, first_line, problems)
        return None
    if root is None:
        return Table({}, {}, Where(file, first_line))
    walk = _Walk(file, problems)
    node = walk.node(root, 0)
    if walk.odd_key:
        unquoted = tuple(_unquoted(text, file, first_line))
        for where, found in unquoted:
            _say_quote(where, found, problems)
        if not unquoted:
            problems.add(walk.odd_key, "a key must be plain text, not a list or a mapping")
    return None if walk.odd_key or walk.too_large else node


def merged(below: Node, above: Node) -> Node:
    """`above` laid over `below`: mappings are merged key by key, anything else is replaced."""
    if not (isinstance(below, Table) and isinstance(above, Table)):
        return above
    entries, lines = dict(below.entries), dict(below.lines)
    for key, node in above.entries.items():
        entries[key] = merged(entries[key], node) if key in entries else node
        lines[key] = above.lines[key]
    return Table(entries, lines, below.where)


class _Untyped(_Loader):  # type: ignore[misc]  # the C loader where there is one
    """Leaves plain scalars to us: PyYAML would read them by YAML 1.1."""

    yaml_implicit_resolvers: ClassVar[dict[str, object]] = {}


class _Walk:
    """From nodes with marks to values with lines."""

    def __init__(self, file: str, problems: Problems) -> None:
        self.file, self.problems = file, problems
        self.odd_key: Where | None = None
        self.too_large = False
        self._count = 0

    def node(self, node: yaml.Node, depth: int) -> Node:
        where = Where(self.file, node.start_mark.line + 1)
        self._count += 1
        if depth > _MAX_DEPTH or self._count > _MAX_NODES:
            if not self.too_large:
                self.problems.add(where, "the YAML is nested too deeply or refers to itself too often")
            self.too_large = True
            return Scalar(None, "", where)
        if node.tag not in _TAGS:
            self.problems.add(where, f"the YAML tag {node.tag!r} is not supported; remove it")
        if isinstance(node, yaml.ScalarNode):
            text = str(node.value)
            return Scalar(text if node.style else plain(text), text, where)
        if isinstance(node, yaml.SequenceNode):
            return Items(tuple(self.node(item, depth + 1) for item in node.value), where)
        return self._table(node, where, depth)

    def _table(self, node: yaml.Node, where: Where, depth: int) -> Table:
        entries: dict[str, Node] = {}
        lines: dict[str, Where] = {}
        for key, value in node.value:
            at = Where(self.file, key.start_mark.line + 1)
            if not isinstance(key, yaml.ScalarNode):
                self.odd_key = self.odd_key or at
                continue
            name = str(key.value)
            if name in entries:
                self.problems.add(at, f"the key {name!r} stands twice; it is also on line {lines[name].line}")
                continue
            entries[name], lines[name] = self.node(value, depth + 1), at
        return Table(entries, lines, where)


def plain(text: str) -> Plain:
    """An unquoted scalar by the YAML 1.2 core schema: `NO`, `off`, `1:30` and dates are text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return float(text.replace(".", "", 1)) if _SPECIAL_FLOAT.fullmatch(text) else text


def _report(error: yaml.YAMLError, text: str, file: str, first_line: int, problems: Problems) -> None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line = mark.line + 1 if mark else first_line
    unquoted = tuple(_unquoted(text, file, first_line))
    for where, found in unquoted:
        _say_quote(where, found, problems)
    if unquoted:
        return
    what = getattr(error, "problem", None) or str(error)
    if "single document" in str(error):
        what = "there is more than one YAML document; keep one"
    last = first_line + text.count("\n")
    problems.add(Where(file, min(line, last)), f"not valid YAML: {what}")


def _unquoted(text: str, file: str, first_line: int) -> Iterator[tuple[Where, str]]:
    for number, line in enumerate(text.splitlines(), first_line):
        if not line.lstrip().startswith("#") and (match := _PLACEHOLDER.search(line)):
            yield Where(file, number), match[0]


def _say_quote(where: Where, found: str, problems: Problems) -> None:
    problems.add(where, f"{found} must be quoted in YAML", f'write "{found}"')
