"""What is computed for groups of rows and for windows, and what is computed of that?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import Aggregate, Node, Output, Project, Window, column, is_column, names_in
from penstock.planner.dynamic.plans.functions import AGGREGATES, ORDERED
from penstock.planner.dynamic.plans.placing import timed
from penstock.planner.dynamic.refusals import Refused

if TYPE_CHECKING:
    from penstock.planner.dynamic.reading.queries import Reader

_CALLS = AGGREGATES | ORDERED | {"grouping", "grouping_id"}
_AROUND = (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
_PARTS = (*_AROUND, exp.Where, exp.Order, exp.Ordered, exp.Distinct, exp.Window, exp.WindowSpec, exp.Star, exp.Literal)
"""What is a part of the call of an aggregate, and no value."""


def _call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in _CALLS


def is_aggregate(node: exp.Expr) -> bool:
    """Whether it is a call of an aggregate with all that belongs to it, and not over a window."""
    inner: exp.Expr = node
    while isinstance(inner, _AROUND):
        inner = inner.this
    if not _call(inner):
        return False
    above: exp.Expr | None = node.parent
    below = node
    while isinstance(above, _AROUND) and above.this is below:
        below = above
        above = above.parent
    return not (isinstance(above, exp.Window) and above.this is below)


def has_aggregate(*values: exp.Expr) -> bool:
    return any(is_aggregate(node) for value in values for node in value.walk())


def in_aggregate(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if is_aggregate(above):
            return True
        above = above.parent
    return False


class Grouping:
    """The groups of one SELECT: expressions over its rows become expressions over its groups."""

    def __init__(self, reader: Reader, rows: Node, keys: Sequence[exp.Expr]) -> None:
        self._reader, self._rows = reader, rows
        self._places: list[int] = []
        self._keys: list[tuple[exp.Expr, Output]] = []
        self._values: list[tuple[exp.Expr, Output]] = []
        self._rows, over_rows = reader.subqueries.attached(self._rows, keys)
        self._moments: dict[str, exp.Expr] = {}
        for key, value in zip(keys, over_rows, strict=True):
            self._places.append(self._key(key, value))

    def _key(self, key: exp.Expr, value: exp.Expr) -> int:
        for place, (known, _) in enumerate(self._keys):
            if known == key:
                return place
        like = key.name if is_column(key) else "k"
        self._keys.append((key, self._reader.output(like, self._without_moments(value))))
        return len(self._keys) - 1

    def over_groups(self, value: exp.Expr) -> exp.Expr:
        """The expression over the columns of the groups."""
        rows = set(self._rows.columns)

        def replaced(node: exp.Expr) -> exp.Expr:
            for key, output in self._keys:
                if node == key:
                    return column(output.name)
            return self._aggregate(node) if is_aggregate(node) else node

        result = value.copy().transform(replaced, copy=False)
        own = {output.name for _, output in (*self._keys, *self._values)}
        if names_in(result) & rows - own:
            raise Refused("NOT_RESOLVED", "a column is neither grouped by nor inside an aggregate")
        return result

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        for known, output in self._values:
            if known == node:
                return column(output.name)
        written = node.copy()
        self._rows, (value,) = self._reader.subqueries.attached(self._rows, [written])
        output = self._reader.output("v", self._without_moments(value))
        self._values.append((written, output))
        return column(output.name)

    def _without_moments(self, value: exp.Expr) -> exp.Expr:
        """Parts that ask for the time are computed row by row below the groups."""

        def moved(node: exp.Expr) -> exp.Expr:
            if isinstance(node, _PARTS) or _call(node) or not timed(node):
                return node
            name = self._reader.names.fresh("moment")
            self._moments[name] = node.copy()
            return column(name)

        return value.copy().transform(moved, copy=False) if timed(value) else value

    def plan(self, sets: tuple[tuple[int, ...], ...] | None) -> Aggregate:
        rows = self._rows
        if self._moments:
            kept = [Output(name, column(name)) for name in rows.columns]
            moments = [Output(name, value) for name, value in self._moments.items()]
            for output in moments:
                self._reader.facts.record(output)
            rows = Project(rows, (*kept, *moments))
        unique = None
        if sets is not None:
            unique = tuple(tuple(dict.fromkeys(self._places[place] for place in own)) for own in sets)
        keys = tuple(output for _, output in self._keys)
        return Aggregate(rows, keys, tuple(output for _, output in self._values), unique)


def with_windows(reader: Reader, plan: Node, values: Sequence[exp.Expr]) -> tuple[Node, list[exp.Expr]]:
    """The plan with the windows that expressions use, and the expressions over their results."""
    found: dict[tuple[str, ...], list[tuple[exp.Expr, Output]]] = {}
    added: list[Output] = []

    def named(value: exp.Expr) -> exp.Expr:
        """A column with this value."""
        if is_column(value) and value.name in plan.columns:
            return value
        known = next((output for output in added if output.value == value), None)
        if known is None:
            known = reader.output("part", value)
            added.append(known)
        return column(known.name)

    def replaced(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window):
            return node
        window: exp.Expr = node.copy()
        parts = [part for part in window.args.get("partition_by") or [] if names_in(part) or timed(part)]
        if not parts:
            raise Refused("WINDOW_WITHOUT_PARTITION_BY", "a window without PARTITION BY hangs on all rows")
        partition = [named(part.unnest()) for part in parts]
        window.set("partition_by", [part.copy() for part in partition])
        if timed(window):
            window = window.transform(lambda part: named(part) if _moved(part) else part)
        same = found.setdefault(tuple(sorted({part.name for part in partition})), [])
        for known, output in same:
            if known == window:
                return column(output.name)
        output = Output(reader.names.fresh("w"), window)
        same.append((window, output))
        return column(output.name)

    results = [value.copy().transform(replaced, copy=False) for value in values]
    if added:
        plan = Project(plan, (*(Output(name, column(name)) for name in plan.columns), *added))
    for partition, windows in found.items():
        for _, output in windows:
            reader.facts.record(output)
        plan = Window(plan, partition, tuple(output for _, output in windows))
    return plan, results


def _moved(node: exp.Expr) -> bool:
    above = node.parent
    if isinstance(node, _PARTS) or (isinstance(above, exp.Window) and above.this is node) or not timed(node):
        return False
    return not isinstance(above, _AROUND) or above.this is not node


def sets(node: exp.Select, keys: Sequence[exp.Expr]) -> tuple[tuple[int, ...], ...] | None:
    """Which of the keys each grouping set has; None: there is one with all."""
    group = node.args.get("group")
    if group is None:
        return None
    every = tuple(range(len(keys)))
    if group.args.get("rollup"):
        return tuple(every[:count] for count in range(len(every), -1, -1))
    if group.args.get("cube"):
        return _subsets(every)
    if not any(isinstance(part, (exp.Rollup, exp.Cube, exp.GroupingSets)) for part in group.expressions):
        return None
    combined: list[tuple[int, ...]] = [()]
    first = 0
    for part in group.expressions:
        own, first = _sets_of(part, first)
        combined = [(*one, *(place for place in other if place not in one)) for one in combined for other in own]
    return tuple(combined)


def _sets_of(part: exp.Expr, first: int) -> tuple[list[tuple[int, ...]], int]:
    """The grouping sets of one element, whose first key has a number, and the number after its last."""
    if not isinstance(part, (exp.Rollup, exp.Cube, exp.GroupingSets)):
        return [(first,)], first + 1
    groups: list[tuple[int, ...]] = []
    for inner in part.expressions:
        size = len(inner.expressions) if isinstance(inner, exp.Tuple) else 1
        groups.append(tuple(range(first, first + size)))
        first += size
    if isinstance(part, exp.GroupingSets):
        return groups, first
    if isinstance(part, exp.Rollup):
        prefixes = [groups[:count] for count in range(len(groups), -1, -1)]
    else:
        prefixes = [[groups[place] for place in chosen] for chosen in _subsets(tuple(range(len(groups))))]
    return [tuple(place for own in prefix for place in own) for prefix in prefixes], first


def _subsets(places: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if not places:
        return ((),)
    rest = _subsets(places[1:])
    return (*((places[0], *chosen) for chosen in rest), *rest)
