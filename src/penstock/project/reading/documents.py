"""What does a YAML 1.2 text say, and on which line?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

from penstock.project.reading.limits import LONG_NUMBER, MAX_DIGITS, long_number
from penstock.project.reading.problems import Problems, Where

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
_TAGS = frozenset({None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))})
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
        entries = {key: node for key, node in self.entries.items() if key not in keys}
        return Table(entries, {key: self.lines[key] for key in entries}, self.where)

    def having(self, key: str, node: Node, where: Where) -> Table:
        return Table({**self.entries, key: node}, {**self.lines, key: where}, self.where)


Node: TypeAlias = Scalar | Items | Table


def read_document(text: str, file: str, problems: Problems, first_line: int = 1) -> Node | None:
    """The one document in `text`, whose first line is line `first_line` of `file`; None when it cannot be read."""
    if (line := long_number(text)) is not None:
        problems.add(Where(file, first_line + line - 1), f"not valid YAML: {LONG_NUMBER}")
        return None
    reader = _Reader(file, first_line, problems)
    try:
        node = reader.document(text)
    except yaml.YAMLError as error:
        _report(error, text, file, first_line, problems)
        return None
    except _TooLarge as error:
        problems.add(error.where, "the YAML is nested too deeply or refers to itself too often")
        return None
    if reader.odd_key:
        unquoted = tuple(_unquoted(text, file, first_line))
        for where, placeholder in unquoted:
            _say_quote(where, placeholder, problems)
        if not unquoted:
            problems.add(reader.odd_key, "a key must be plain text, not a list or a mapping")
        return None
    return node


def merged(below: Node, above: Node) -> Node:
    """`above` laid over `below`: mappings are merged key by key, anything else is replaced."""
    if not (isinstance(below, Table) and isinstance(above, Table)):
        return above
    entries, lines = dict(below.entries), dict(below.lines)
    for key, node in above.entries.items():
        entries[key] = merged(entries[key], node) if key in entries else node
        lines[key] = above.lines[key]
    return Table(entries, lines, below.where)


class _TooLarge(Exception):  # noqa: N818  # never leaves this module
    def __init__(self, where: Where) -> None:
        self.where = where


class _Reader:
    """From events to values with lines, and no further than the limits: nothing large is ever made of a small text."""

    def __init__(self, file: str, first_line: int, problems: Problems) -> None:
        self.file, self.first_line, self.problems = file, first_line, problems
        self.odd_key: Where | None = None
        self._count = 0
        self._anchors: dict[str, tuple[Node, int]] = {}
        self._open: set[str] = set()
        self._events: Iterator[yaml.Event] = iter(())

    def document(self, text: str) -> Node:
        # plain scalars are left to us: PyYAML would read them by YAML 1.1
        self._events = yaml.parse(text, Loader=_Loader)
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return Table({}, {}, Where(self.file, self.first_line))
        node = self._node(next(self._events), 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            said = "not valid YAML: there is more than one YAML document; keep one"
            self.problems.add(self._where(after), said)
        return node

    def _where(self, event: Any) -> Where:
        return Where(self.file, event.start_mark.line + self.first_line)

    def _node(self, event: Any, depth: int) -> Node:
        where, before, mark = self._where(event), self._count, event.start_mark
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in self._open:
                raise _TooLarge(where)
            if event.anchor not in self._anchors:
                raise yaml.composer.ComposerError(None, None, f"found undefined alias {event.anchor!r}", mark)
            node, size = self._anchors[event.anchor]
            self._counted(size, where, depth)
            return node
        self._counted(1, where, depth)
        if event.tag not in _TAGS:
            self.problems.add(where, f"the YAML tag {event.tag!r} is not supported; remove it")
        if event.anchor is None:
            return self._value(event, where, depth)
        self._open.add(event.anchor)
        node = self._value(event, where, depth)
        self._open.discard(event.anchor)
        self._anchors[event.anchor] = (node, self._count - before)
        return node

    def _counted(self, size: int, where: Where, depth: int) -> None:
        self._count += size
        if depth > _MAX_DEPTH or self._count > _MAX_NODES:
            raise _TooLarge(where)

    def _value(self, event: Any, where: Where, depth: int) -> Node:
        if isinstance(event, yaml.ScalarEvent):
            text = str(event.value)
            return Scalar(text if event.style else plain(text), text, where)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(inner := next(self._events), yaml.SequenceEndEvent):
                items.append(self._node(inner, depth + 1))
            return Items(tuple(items), where)
        return self._table(where, depth)

    def _table(self, where: Where, depth: int) -> Table:
        entries: dict[str, Node] = {}
        lines: dict[str, Where] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            at = self._where(event)
            key, value = self._node(event, depth + 1), self._node(next(self._events), depth + 1)
            if not isinstance(key, Scalar):
                self.odd_key = self.odd_key or at
            elif key.raw in entries:
                self.problems.add(at, f"the key {key.raw!r} stands twice; it is also on line {lines[key.raw].line}")
            else:
                entries[key.raw], lines[key.raw] = value, at
        return Table(entries, lines, where)


def plain(text: str) -> Plain:
    """An unquoted scalar by the YAML 1.2 core schema: `NO`, `off`, `1:30` and dates are text."""
    if text in _CONSTANTS or len(text) > MAX_DIGITS:
        return _CONSTANTS.get(text, text)
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
    line = mark.line + first_line if mark else first_line
    unquoted = tuple(_unquoted(text, file, first_line))
    for where, placeholder in unquoted:
        _say_quote(where, placeholder, problems)
    if unquoted:
        return
    what = getattr(error, "problem", None) or str(error)
    last = first_line + text.count("\n")
    problems.add(Where(file, min(line, last)), f"not valid YAML: {what}")


def _unquoted(text: str, file: str, first_line: int) -> Iterator[tuple[Where, str]]:
    for number, line in enumerate(text.splitlines(), first_line):
        if not line.lstrip().startswith("#") and (match := _PLACEHOLDER.search(line)):
            yield Where(file, number), match[0]


def _say_quote(where: Where, placeholder: str, problems: Problems) -> None:
    problems.add(where, f"{placeholder} must be quoted in YAML", f'write "{placeholder}"')
