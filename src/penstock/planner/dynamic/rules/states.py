"""What is a plan at the old and at the new state of its inputs?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Filter,
    Join,
    Node,
    Nothing,
    Output,
    Project,
    Scan,
    SetOperation,
    Union,
    children,
    column,
    projected,
    with_children,
)
from penstock.planner.dynamic.plans.kinds import Facts
from penstock.planner.dynamic.plans.names import Names
from penstock.planner.dynamic.plans.placing import timed

CHANGES, OLD = "__changes", "__old"


@dataclass(frozen=True, slots=True)
class Step:
    """From one state of the inputs to another: which of them changed, and the times of both states."""

    changed: frozenset[str]
    then: datetime | None
    now: datetime | None
    facts: Facts
    names: Names
    found: dict[tuple[int, frozenset[str]], Node] = field(default_factory=dict)
    """The changed rows of nodes that were asked for already."""

    @property
    def time_passed(self) -> bool:
        return self.then != self.now


def at(value: exp.Expr, moment: datetime | None) -> exp.Expr:
    """The expression with the time of the query written into it."""
    if not timed(value):
        return value
    if moment is None:
        raise ValueError("the query asks for the time, and no time is given")
    return value.transform(lambda node: _literal(node, moment) if isinstance(node, exp.Placeholder) else node)


def _literal(node: exp.Placeholder, moment: datetime) -> exp.Expr:
    utc = moment.astimezone(UTC)
    kind = str(node.this)
    if kind == "bigint":
        return exp.cast(exp.Literal.number(int(utc.timestamp())), "bigint", dialect="spark")
    text = utc.strftime("%Y-%m-%d") if kind == "date" else utc.strftime("%Y-%m-%d %H:%M:%S.%f")
    return exp.cast(exp.Literal.string(f"{text}Z" if kind == "timestamp" else text), kind, dialect="spark")


def _at_moment(node: Node, moment: datetime | None, relations: Mapping[str, str]) -> Node:
    below = tuple(_at_moment(child, moment, relations) for child in children(node))
    match node:
        case Scan():
            return replace(node, relation=relations.get(node.source, node.relation))
        case Filter():
            return Filter(below[0], at(node.condition, moment))
        case Project():
            return Project(below[0], tuple(Output(part.name, at(part.value, moment)) for part in node.outputs))
        case _:
            return with_children(node, below)


def new(node: Node, now: datetime | None) -> Node:
    return _at_moment(node, now, {})


def old(node: Node, step: Step) -> Node:
    return _at_moment(node, step.then, {name: f"{name}{OLD}" for name in step.changed})


def filtered(node: Node, condition: exp.Expr) -> Node:
    return node if isinstance(node, Nothing) else Filter(node, condition)


def computed(node: Node, outputs: tuple[Output, ...]) -> Node:
    """These outputs of each row."""
    if isinstance(node, Nothing):
        return Nothing(tuple(output.name for output in outputs))
    return Project(node, outputs)


def matched(left: Node, right: Node, kind: str, condition: tuple[exp.Expr, ...]) -> Node:
    """An inner join or semi-join; nothing where one side is."""
    joined = Join(left, right, "semi" if kind == "semi" else "inner", condition)
    return Nothing(joined.columns) if isinstance(left, Nothing) or isinstance(right, Nothing) else joined


def together(*parts: Node) -> Node:
    """All rows of plans with the same columns."""
    flat = [inner for part in parts if not isinstance(part, Nothing) for inner in _flat(part)]
    if len(flat) < 2:
        return flat[0] if flat else parts[0]
    return Union(tuple(flat), parts[0].columns)


def _flat(part: Node) -> tuple[Node, ...]:
    same_names = isinstance(part, Union) and part.alike and all(one.columns == part.names for one in part.parts)
    return part.parts if isinstance(part, Union) and same_names else (part,)


def parts_together(node: Union | SetOperation, parts: Sequence[Node], rows: Sequence[Node], step: Step) -> Node:
    """Rows of the parts of a node, matched by place.

    Where the parts differ in type, the empty ones stay: all rows have the types that they have in the whole query.
    """
    names = tuple(node.names[parts[0].columns.index(name)] for name in rows[0].columns)
    if all(isinstance(part, Nothing) for part in rows):
        return Nothing(names)
    kept: list[Node] = []
    for part, own in zip(parts, rows, strict=True):
        if not isinstance(own, Nothing):
            kept.append(own)
        elif not node.alike:
            kept.append(projected(Filter(new(part, step.now), exp.false()), own.columns))
    if len(kept) == 1:
        return Project(kept[0], tuple(Output(*pair) for pair in zip(names, map(column, kept[0].columns), strict=True)))
    return Union(tuple(kept), names, node.alike)
