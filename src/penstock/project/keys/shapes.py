"""Which values may a key have, for the loader and for the JSON schema alike?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast

from penstock.errors import nearest
from penstock.project.reading.documents import Items, Node, Plain, Scalar, Table
from penstock.project.reading.limits import MAX_COUNT, MAX_NAME, MAX_SECONDS, MAX_SPAN, cut
from penstock.project.reading.problems import Problems, Where, did_you_mean
from penstock.values.intervals import MAX_POSITION, MIN_POSITION
from penstock.values.models.axis import DURATION, duration

Json: TypeAlias = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None

PROJECT_FILE = "the project"
IDENTIFIER = rf"[A-Za-z_][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}"
IDENTIFIER_RULE = f"use letters, digits and _, {MAX_NAME} at most, and start with a letter or _"


class Shape(Protocol):
    """Checks a node and says the same as a JSON schema."""

    @property
    def expected(self) -> str:
        """What a person should have written."""
        ...

    def fits(self, node: Node) -> bool:
        """The node is of the right kind; what is inside of it may still be wrong."""
        ...

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        """The node without its wrong parts, which are reported; None when nothing is left."""
        ...

    def schema(self) -> dict[str, Json]: ...


def in_words(node: Node) -> str:
    """What stands there, in words."""
    match node:
        case Scalar(value=None):
            return "nothing"
        case Scalar(value=bool()):
            return node.raw
        case Scalar(value=str()):
            return repr(cut(node.raw))
        case Scalar():
            return f"the number {cut(node.raw)}"
        case Items():
            return "a list"
        case Table():
            return "a mapping"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A shape without parts."""

    expected: str
    accepts: Callable[[Plain], bool]
    json: Mapping[str, Json]

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and self.accepts(node.value)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if self.fits(node):
            return node
        problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}")
        return None

    def schema(self) -> dict[str, Json]:
        return dict(self.json)


def text(expected: str, pattern: str) -> Leaf:
    json: dict[str, Json] = {"type": "string", "pattern": f"^({pattern})$"}
    return Leaf(expected, lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, json)


def integer(least: int, most: int = MAX_COUNT) -> Leaf:
    json: dict[str, Json] = {"type": "integer", "minimum": least, "maximum": most}
    expected = f"a whole number from {least} to {most}"
    return Leaf(expected, lambda value: type(value) is int and least <= value <= most, json)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text or a whole number in a little language of its own; what its reader objects to is said too."""

    expected: str
    pattern: str
    """For texts: as much as a JSON schema can know of them."""
    read: Callable[[str], object]

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and type(node.value) in (int, str)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        why = ""
        if isinstance(node, Scalar) and self.fits(node):
            try:
                self.read(str(node.value))
            except ValueError as error:
                why = f": {error}"
            if not why and (isinstance(node.value, int) or re.fullmatch(self.pattern, node.raw)):
                return node
        problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}{why}")
        return None

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": f"^({self.pattern})$"}]}


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[str, ...]

    @property
    def expected(self) -> str:
        return ", ".join(self.values[:-1]) + f" or {self.values[-1]}" if len(self.values) > 1 else self.values[0]

    def fits(self, node: Node) -> bool:
        return isinstance(node, Scalar) and node.value in self.values

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if self.fits(node):
            return node
        near = did_you_mean(node.raw, self.values) if isinstance(node, Scalar) else ""
        problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}{near}")
        return None

    def schema(self) -> dict[str, Json]:
        return {"enum": list(self.values)}


@dataclass(frozen=True, slots=True)
class ListOf:
    item: Shape

    @property
    def expected(self) -> str:
        return f"a list, each item {self.item.expected}"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Items)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if not isinstance(node, Items):
            problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}")
            return None
        cleaned = (self.item.clean(item, f"an item of {name}", problems) for item in node.items)
        return Items(tuple(item for item in cleaned if item is not None), node.where)

    def schema(self) -> dict[str, Json]:
        return {"type": "array", "items": self.item.schema()}


@dataclass(frozen=True, slots=True)
class MapOf:
    """A mapping whose keys the author chooses."""

    value: Shape
    key: str | None = None
    """A pattern for the keys."""

    @property
    def expected(self) -> str:
        return "a mapping"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Table)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if not isinstance(node, Table):
            problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}")
            return None
        entries: dict[str, Node] = {}
        for key, value in node.entries.items():
            if self.key is not None and not re.fullmatch(self.key, key):
                problems.add(node.at(key), f"{key!r} cannot be a name in {name}")
            elif (cleaned := self.value.clean(value, inner(name, key), problems)) is not None:
                entries[key] = cleaned
        return Table(entries, {key: node.lines[key] for key in entries}, node.where)

    def schema(self) -> dict[str, Json]:
        if self.key is None:
            return {"type": "object", "additionalProperties": self.value.schema()}
        named: dict[str, Json] = {f"^({self.key})$": self.value.schema()}
        return {"type": "object", "patternProperties": named, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Either:
    """The first shape that fits decides."""

    shapes: tuple[Shape, ...]
    expected: str

    def fits(self, node: Node) -> bool:
        return any(shape.fits(node) for shape in self.shapes)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        for shape in self.shapes:
            if shape.fits(node):
                return shape.clean(node, name, problems)
        problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}")
        return None

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [shape.schema() for shape in self.shapes]}


@dataclass(frozen=True, slots=True)
class Stretch(Either):
    """A duration or a number; the limits are said only of what is beyond them."""

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if self.fits(node):
            return node
        what = in_words(node)
        if isinstance(node, Scalar) and _is_too_long(node.value):
            most = f"{MAX_SECONDS} seconds or {MAX_SPAN} positions are the most"
            problems.add(node.where, f"{name}: {what} is too long; {most}")
        else:
            wanted = self.expected.removeprefix("a duration such as ")
            problems.add(node.where, f"{name}: {what} is not a duration: write {wanted}")
        return None


def _is_too_long(value: Plain) -> bool:
    if isinstance(value, str):
        return re.fullmatch(DURATION, value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


class Later:
    """A shape that is made when it is first asked for."""

    def __init__(self, make: Callable[[], Shape]) -> None:
        self._make, self._built = make, cast("Shape | None", None)

    @property
    def _shape(self) -> Shape:
        self._built = self._built or self._make()
        return self._built

    @property
    def expected(self) -> str:
        return self._shape.expected

    def fits(self, node: Node) -> bool:
        return self._shape.fits(node)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        return self._shape.clean(node, name, problems)

    def schema(self) -> dict[str, Json]:
        return self._shape.schema()


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    shape: Shape
    about: str = ""
    types: frozenset[str] = frozenset()
    """The model types it is for; empty where that does not matter."""


@dataclass(frozen=True, slots=True)
class TableOf:
    """A mapping with known keys."""

    keys: tuple[Key, ...]
    required: tuple[str, ...] = ()
    nullable: bool = False
    one_of: tuple[str, ...] = ()
    """Exactly one of these must be written."""

    @property
    def expected(self) -> str:
        return f"a mapping with {', '.join(key.name for key in self.keys)}"

    def fits(self, node: Node) -> bool:
        return isinstance(node, Table) or (self.nullable and isinstance(node, Scalar) and node.value is None)

    def clean(self, node: Node, name: str, problems: Problems) -> Node | None:
        if not self.fits(node):
            problems.add(node.where, f"{name} must be {self.expected}, not {in_words(node)}")
            return None
        if not isinstance(node, Table):
            return Table({}, {}, node.where)
        shapes = {key.name: key.shape for key in self.keys}
        unknown = [key for key in node.entries if key not in shapes]
        say_unknown(((node.at(key), key) for key in unknown), name, shapes, problems)
        entries: dict[str, Node] = {}
        for key, value in node.entries.items():
            if key in shapes and (cleaned := shapes[key].clean(value, inner(name, key), problems)) is not None:
                entries[key] = cleaned
        whole = self._complete(node, name, {nearest(key, shapes) for key in unknown}, problems)
        return Table(entries, {key: node.lines[key] for key in entries}, node.where) if whole else None

    def _complete(self, node: Table, name: str, meant: set[str | None], problems: Problems) -> bool:
        """Nothing needed is missing. What a misspelt key was `meant` to be is not reported a second time."""
        missing = [key for key in self.required if key not in node.entries]
        for key in missing:
            if key not in meant:
                problems.add(node.where, f"{name} needs the key {key!r}")
        chosen = [key for key in self.one_of if key in node.entries]
        wrong_choice = bool(self.one_of) and len(chosen) != 1
        if wrong_choice and not meant.intersection(self.one_of):
            problems.add(node.where, f"{name} must have exactly one of {', '.join(self.one_of)}")
        return not missing and not wrong_choice

    def schema(self) -> dict[str, Json]:
        json = object_schema(self.keys, self.required)
        if self.one_of:
            json["oneOf"] = [{"required": [key]} for key in self.one_of]
        return {**json, "type": ["object", "null"]} if self.nullable else json


def inner(name: str, key: str) -> str:
    """How a key inside of `name` is called; the project itself has no name."""
    return f"{name}.{key}" if name != PROJECT_FILE else key


def say_unknown(unknown: Iterable[tuple[Where, str]], name: str, known: Iterable[str], problems: Problems) -> None:
    names = tuple(known)
    for where, key in unknown:
        near = did_you_mean(key, names) or f"; it can have {', '.join(names)}"
        problems.add(where, f"{name} has no key {key!r}{near}")


def object_schema(keys: Iterable[Key], required: Iterable[str] = ()) -> dict[str, Json]:
    def described(key: Key) -> dict[str, Json]:
        return {**key.shape.schema(), **({"description": key.about} if key.about else {})}

    json: dict[str, Json] = {"type": "object", "properties": {key.name: described(key) for key in keys}}
    needed: list[Json] = list(required)
    return {**json, "additionalProperties": False, **({"required": needed} if needed else {})}


NAME = text("a name of letters, digits and _", IDENTIFIER)
TEXT = Leaf("text", lambda value: isinstance(value, str) and value != "", {"type": "string", "minLength": 1})
FLAG = Leaf("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
WHOLE = integer(MIN_POSITION + 1, MAX_POSITION - 1)
SHARE = Leaf(
    "a number from 0 to 1",
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1,
    {"type": "number", "minimum": 0, "maximum": 1},
)
PLAIN = Leaf("one value", lambda value: value is not None, {"type": ["string", "number", "boolean"]})
_WRITTEN = "a duration such as 30s, 5 minutes, 1 hour, 1 day or a number"


def _fits_duration(value: Plain) -> bool:
    return isinstance(value, str) and re.fullmatch(DURATION, value) is not None and duration(value) <= MAX_SECONDS


_DURATION = Leaf("a duration", _fits_duration, {"type": "string", "pattern": f"^({DURATION})$"})
TIME = Stretch((integer(0, MAX_SECONDS), _DURATION), _WRITTEN)
"""A stretch of time."""
LENGTH = Stretch((integer(0, MAX_SPAN), _DURATION), _WRITTEN)
"""A stretch on an axis, which may count something else."""
