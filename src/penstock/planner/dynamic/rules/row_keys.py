"""By which columns are the rows of a dynamic table replaced?

Any columns would do: rows whose key changed rows have are computed again, whatever the key. A good key is known without
computing old results, can be looked up in the relations that the query reads, and tells many rows apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Aggregate,
    Distinct,
    Explode,
    Filter,
    Join,
    Node,
    Nothing,
    OneRow,
    Output,
    Project,
    Scan,
    SetOperation,
    Shared,
    Union,
    Window,
    column,
    names_in,
)
from penstock.planner.dynamic.plans.kinds import Facts, comparable_again, unfit_for_key
from penstock.planner.dynamic.plans.names import Names
from penstock.planner.dynamic.refusals import Refused
from penstock.planner.dynamic.rules.reach import plain_columns
from penstock.planner.dynamic.rules.restricting import equalities

HIDDEN = "__penstock_k"


@dataclass(frozen=True, slots=True)
class _Natural:
    """What a plan groups or partitions by."""

    values: tuple[exp.Expr, ...]
    rows: bool
    """There are also rows that are told apart by their columns only."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A plan that shows the key of its rows."""

    plan: Node
    visible: tuple[str, ...]
    hidden: tuple[str, ...]
    key: tuple[str, ...]


def keyed(plan: Node, facts: Facts, names: Names, declared: Sequence[str]) -> Keyed:
    """The plan with its key; `declared` are columns of the plan, of which the key consists if there are any."""
    visible = plan.columns
    if declared:
        _check(declared, facts)
        return Keyed(plan, visible, (), tuple(declared))
    natural = _natural(plan, facts)
    key: list[str] = []
    for value in natural.values:
        shown = _shown(plan, value, facts, names)
        if shown is None:
            natural = replace(natural, rows=True)
            continue
        plan, name = shown
        key.append(name)
    fit = [name for name in visible if comparable_again(name, facts)]
    if natural.rows:
        plain = plain_columns(plan)
        key += [name for name in fit if name in plain and name not in key]
        key = key or fit
        if not key:
            _check(visible, facts)
            raise Refused("NO_KEY", "it has no column by which rows can be told apart")
    _check(key, facts)
    hidden = tuple(name for name in plan.columns if name not in visible)
    return Keyed(plan, visible, hidden, tuple(name for name in plan.columns if name in key))


def _check(key: Sequence[str], facts: Facts) -> None:
    for name in key:
        if name in facts.inexact:
            raise Refused("FLOAT_KEY", "its rows are told apart by a result that can differ in its last digits")
        code = unfit_for_key(facts.kinds.get(name))
        if code is not None:
            raise Refused(code, f"values of the type {facts.kinds[name]} cannot tell rows apart")


def _natural(node: Node, facts: Facts) -> _Natural:  # noqa: PLR0911  # one line per kind of node
    match node:
        case Scan() | Shared():
            return _Natural((), True)
        case OneRow() | Nothing():
            return _Natural((), False)
        case Filter() | Explode():
            below = _natural(node.child, facts)
            return replace(below, rows=below.rows or isinstance(node, Explode))
        case Project():
            return _natural(node.child, facts)
        case Join():
            return _natural_of_join(node, facts)
        case Aggregate():
            return _Natural(tuple(column(key.name) for key in node.keys), False)
        case Window():
            return _natural_of_window(node, facts)
        case Distinct():
            below = _natural(node.child, facts)
            seen = _seen(node.child, below.values)
            return _Natural(seen, below.rows or len(seen) < len(below.values))
        case Union() | SetOperation():
            return _natural_of_sides(node, facts)


def _natural_of_join(node: Join, facts: Facts) -> _Natural:
    """The keys of both sides; one of the right side that the join makes equal to a value of the left is that value."""
    left = _natural(node.left, facts)
    if node.kind in ("semi", "anti"):
        return left
    right = _natural(node.right, facts)
    equal = equalities(node, facts)
    mine, theirs = (_as_seen(node.left, left.values), _as_seen(node.right, right.values))
    if node.kind == "full":
        values = tuple(_coalesced(value, equal) for value in (*mine, *theirs))
    else:
        mirrored = tuple(next((one for one, other in equal if other == value), value) for value in theirs)
        values = (*mine, *mirrored)
    return _Natural(_once(values), left.rows or right.rows)


def _as_seen(side: Node, values: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The values under the names that one side of a join gives them, if it shows them."""
    names = [_column_of(side, value) for value in values]
    return [value if name is None else column(name) for name, value in zip(names, values, strict=True)]


def _coalesced(value: exp.Expr, equal: list[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    for pair in equal:
        if value in pair:
            return exp.Anonymous(this="coalesce", expressions=[side.copy() for side in pair])
    return value


def _once(values: Sequence[exp.Expr]) -> tuple[exp.Expr, ...]:
    kept: list[exp.Expr] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return tuple(kept)


def _natural_of_window(node: Window, facts: Facts) -> _Natural:
    """The columns that all its windows partition by; where there are none, the columns of all of them."""
    partitions, inner = [node.partition], node.child
    while isinstance(inner, Window):
        partitions.append(inner.partition)
        inner = inner.child
    common = [name for name in node.partition if all(name in other for other in partitions)]
    names = common or list(dict.fromkeys(name for partition in partitions for name in partition))
    del facts
    return _Natural(tuple(column(name) for name in names), False)


def _natural_of_sides(node: Union | SetOperation, facts: Facts) -> _Natural:
    """Keys that are in the same places on all sides; else rows are told apart by all columns."""
    sides = node.parts if isinstance(node, Union) else (node.left, node.right)
    places: list[set[int]] = []
    for side in sides:
        natural = _natural(side, facts)
        seen = _seen(side, natural.values)
        if natural.rows or len(seen) < len(natural.values) or not seen:
            return _Natural((), True)
        places.append({side.columns.index(value.name) for value in seen})
    common = sorted(set.intersection(*places))
    return _Natural(tuple(column(node.names[place]) for place in common), not common)


def _seen(node: Node, values: Sequence[exp.Expr]) -> tuple[exp.Column, ...]:
    """Those of the values that are columns of the plan."""
    found = []
    for value in values:
        name = _column_of(node, value)
        if name is not None:
            found.append(column(name))
    return tuple(found)


def _column_of(node: Node, value: exp.Expr) -> str | None:
    """The column of the plan that has a value of the plan below; None when none has."""
    if isinstance(value, exp.Column) and value.name in node.columns:
        return value.name
    match node:
        case Project():
            below = _column_of(node.child, value)
            wanted = value if below is None else column(below)
            return next((output.name for output in node.outputs if output.value == wanted), None)
        case Filter() | Window() | Explode():
            return _column_of(node.child, value)
        case Join():
            return _column_of(node.left, value) or (
                None if node.kind in ("semi", "anti") else _column_of(node.right, value)
            )
    return None


def _shown(  # noqa: PLR0911  # one line per kind of node
    plan: Node, value: exp.Expr, facts: Facts, names: Names
) -> tuple[Node, str] | None:
    """The plan with a column for a value of the plan below it, and its name; None when it cannot have one."""
    seen = _column_of(plan, value)
    if seen is not None:
        return plan, seen
    if names_in(value) <= set(plan.columns) and not isinstance(plan, Project):
        output = Output(names.fresh(HIDDEN), value)
        facts.record(output)
        return Project(plan, (*(Output(name, column(name)) for name in plan.columns), output)), output.name
    match plan:
        case Project():
            below = _shown(plan.child, value, facts, names)
            if below is None:
                return None
            child, name = below
            output = Output(names.fresh(HIDDEN), column(name))
            facts.copy_of(output.name, name)
            return Project(child, (*plan.outputs, output)), output.name
        case Filter() | Window() | Explode():
            below = _shown(plan.child, value, facts, names)
            return None if below is None else (replace(plan, child=below[0]), below[1])
        case Join():
            below = _shown(plan.left, value, facts, names)
            if below is not None:
                return replace(plan, left=below[0]), below[1]
            below = None if plan.kind in ("semi", "anti") else _shown(plan.right, value, facts, names)
            return None if below is None else (replace(plan, right=below[0]), below[1])
    return None
