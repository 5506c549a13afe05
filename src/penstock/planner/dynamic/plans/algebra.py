"""What is a query made of, once every name in it is resolved?

A plan is a tree of nodes. Each column of a node has a name that no other column of the plan has, so an expression can
be moved from one node to another without getting a new meaning. A column in an expression is a plain `exp.Column` of
that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

JoinKind = Literal["inner", "left", "full", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Output:
    """A column and how it is computed."""

    name: str
    value: exp.Expr


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a relation."""

    relation: str
    source: str
    """The input whose state this is; empty for a relation that is no input."""
    names: tuple[str, ...]
    source_columns: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True, slots=True)
class OneRow:
    """One row without columns: a SELECT without FROM."""

    @property
    def columns(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Nothing:
    """No rows."""

    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True, slots=True)
class Filter:
    child: Node
    condition: exp.Expr

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns


@dataclass(frozen=True, slots=True)
class Project:
    child: Node
    outputs: tuple[Output, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)


@dataclass(frozen=True, slots=True)
class Explode:
    """Each row with the rows that a generator makes of it."""

    child: Node
    generator: exp.Expr
    outer: bool
    made: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *self.made)


@dataclass(frozen=True, slots=True)
class Join:
    left: Node
    right: Node
    kind: JoinKind
    condition: tuple[exp.Expr, ...]
    """All of them hold."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.left.columns if self.kind in ("semi", "anti") else (*self.left.columns, *self.right.columns)


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all parts; the columns of a part are matched by their place."""

    parts: tuple[Node, ...]
    names: tuple[str, ...]
    alike: bool = True
    """Whether the parts are known to have the same types."""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True, slots=True)
class Distinct:
    child: Node

    @property
    def columns(self) -> tuple[str, ...]:
        return self.child.columns


@dataclass(frozen=True, slots=True)
class SetOperation:
    """EXCEPT and INTERSECT."""

    left: Node
    right: Node
    kind: Literal["except", "intersect"]
    every: bool
    """Duplicates count."""
    names: tuple[str, ...]
    alike: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


@dataclass(frozen=True, slots=True)
class Aggregate:
    child: Node
    keys: tuple[Output, ...]
    values: tuple[Output, ...]
    sets: tuple[tuple[int, ...], ...] | None = None
    """Which keys each of its grouping sets has; None: all."""

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in (*self.keys, *self.values))


@dataclass(frozen=True, slots=True)
class Window:
    """Each row with values that hang on the rows of its partition."""

    child: Node
    partition: tuple[str, ...]
    values: tuple[Output, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.child.columns, *(output.name for output in self.values))


@dataclass(frozen=True, slots=True)
class Shared:
    """A relation that is written once and read in several places."""

    name: str
    child: Node
    names: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return self.names


Node = (
    Scan
    | OneRow
    | Nothing
    | Filter
    | Project
    | Explode
    | Join
    | Union
    | Distinct
    | SetOperation
    | Aggregate
    | Window
    | Shared
)

TRUE = exp.true()


def column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def is_column(value: exp.Expr) -> bool:
    return isinstance(value, exp.Column)


def names_in(*values: exp.Expr) -> frozenset[str]:
    """The columns that expressions read."""
    return frozenset(found.name for value in values for found in value.find_all(exp.Column))


def substituted(value: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    """The expression over other columns."""
    if isinstance(value, exp.Column):
        return values.get(value.name, value).copy()
    return value.transform(
        lambda node: wrapped(values[node.name].copy()) if isinstance(node, exp.Column) and node.name in values else node
    )


def wrapped(value: exp.Expr) -> exp.Expr:
    """In brackets, unless nothing around it can bind more tightly."""
    plain = (exp.Column, exp.Literal, exp.Anonymous, exp.Paren, exp.Cast, exp.Null, exp.Boolean, exp.Dot)
    return value if isinstance(value, plain) else exp.Paren(this=value)


def conjuncts(condition: exp.Expr) -> tuple[exp.Expr, ...]:
    """The conditions that all have to hold; none for TRUE."""
    plain = condition.unnest()
    if isinstance(plain, exp.And):
        return (*conjuncts(plain.this), *conjuncts(plain.expression))
    if isinstance(plain, exp.Between) and not plain.args.get("symmetric"):
        low = exp.GTE(this=plain.this.copy(), expression=plain.args["low"].copy())
        return (low, exp.LTE(this=plain.this.copy(), expression=plain.args["high"].copy()))
    if isinstance(plain, exp.Boolean) and plain.this:
        return ()
    return (plain,)


def all_of(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """Holds where all conditions hold."""
    parts = [wrapped_or(condition.copy()) for condition in conditions]
    if not parts:
        return TRUE.copy()
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.And(this=whole, expression=part)
    return whole


def wrapped_or(condition: exp.Expr) -> exp.Expr:
    return exp.Paren(this=condition) if isinstance(condition, exp.Or) else condition


def any_of(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """Holds where one of the conditions does."""
    parts = [exp.Paren(this=part.copy()) if isinstance(part, exp.And) else part.copy() for part in conditions]
    whole = parts[0]
    for part in parts[1:]:
        whole = exp.Or(this=whole, expression=part)
    return whole


def same(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Equal, where NULL equals NULL."""
    return exp.NullSafeEQ(this=wrapped(left.copy()), expression=wrapped(right.copy()))


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Scan() | OneRow() | Nothing():
            return ()
        case Join() | SetOperation():
            return (node.left, node.right)
        case Union():
            return node.parts
        case _:
            return (node.child,)


def with_children(node: Node, new: tuple[Node, ...]) -> Node:
    match node:
        case Scan() | OneRow() | Nothing():
            return node
        case Join() | SetOperation():
            return replace(node, left=new[0], right=new[1])
        case Union():
            return replace(node, parts=new)
        case _:
            return replace(node, child=new[0])


def expressions(node: Node) -> tuple[exp.Expr, ...]:  # noqa: PLR0911  # one line per kind of node
    """What a node computes itself."""
    match node:
        case Filter():
            return (node.condition,)
        case Project():
            return tuple(output.value for output in node.outputs)
        case Explode():
            return (node.generator,)
        case Join():
            return node.condition
        case Aggregate():
            return tuple(output.value for output in (*node.keys, *node.values))
        case Window():
            return tuple(output.value for output in node.values)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all that is below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def projected(node: Node, names: Iterable[str]) -> Node:
    """Only these columns, in this order."""
    wanted = tuple(names)
    if wanted == node.columns:
        return node
    if isinstance(node, Nothing):
        return Nothing(wanted)
    return Project(node, tuple(Output(name, column(name)) for name in wanted))
