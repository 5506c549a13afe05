"""How does a subquery in an expression become a join?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Aggregate,
    Distinct,
    Filter,
    Join,
    Node,
    Output,
    Project,
    column,
    expressions,
    is_column,
    names_in,
    substituted,
    walk,
)
from penstock.planner.dynamic.plans.placing import joined, placed
from penstock.planner.dynamic.reading.scope import Scope
from penstock.planner.dynamic.refusals import Refused

if TYPE_CHECKING:
    from penstock.planner.dynamic.reading.queries import Named, Reader

_CORRELATED = Refused("CORRELATED_SUBQUERY", "a subquery uses columns of the query around it in a place without a rule")


@dataclass(frozen=True, slots=True)
class _Value:
    """A subquery that stands for a value: the plan to join, how, and the value over the joined row."""

    plan: Node
    conditions: tuple[exp.Expr, ...]
    single: bool
    """It has one row, whatever the row it is joined to."""
    value: exp.Expr


class Subqueries:
    """The subqueries of one query."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._pending: dict[str, _Value] = {}

    def pending_in(self, *values: exp.Expr) -> bool:
        return bool(names_in(*values) & set(self._pending))

    def where(self, plan: Node, condition: exp.Expr, scope: Scope, known: Mapping[str, Named]) -> Node:
        """The rows for which a condition of WHERE holds."""
        inner, negated = condition.unnest(), False
        while isinstance(inner, exp.Not):
            inner, negated = inner.this.unnest(), not negated
        if isinstance(inner, exp.Exists):
            right, conditions = self._lifted(inner.this, scope, known)
            return joined(plan, right, "anti" if negated else "semi", conditions)
        if isinstance(inner, exp.In) and inner.args.get("query"):
            return self._member(plan, inner, negated, scope, known)
        value = self._reader.resolved(condition, scope, known)
        plan, (value,) = self.attached(plan, [value])
        return placed(plan, value)

    def _member(self, plan: Node, node: exp.In, negated: bool, scope: Scope, known: Mapping[str, Named]) -> Node:
        plan, tests = self.attached(plan, self._compared(node, scope, known))
        read = self._reader.query(node.args["query"].unnest(), known, scope)
        if len(read.titles) != len(tests):
            raise Refused("NOT_RESOLVED", "IN compares another number of columns than its subquery has")
        right, conditions = lifted(_without_distinct(read.plan))
        pairs = [
            exp.EQ(this=test.copy(), expression=title.value.copy())
            for test, title in zip(tests, read.titles, strict=True)
        ]
        if not negated:
            return joined(plan, _closed(right), "semi", [*conditions, *pairs])
        unknown: exp.Expr
        if len(pairs) == 1:
            unknown = exp.Or(
                this=pairs[0].copy(), expression=exp.Is(this=exp.Paren(this=pairs[0]), expression=exp.Null())
            )
        else:
            every = exp.and_(*pairs, copy=False)
            unknown = exp.Anonymous(this="coalesce", expressions=[every, exp.true()])
        return joined(plan, _closed(right), "anti", [*conditions, unknown])

    def _compared(self, node: exp.In, scope: Scope, known: Mapping[str, Named]) -> list[exp.Expr]:
        test = node.this.unnest()
        parts = test.expressions if isinstance(test, exp.Tuple) else [node.this]
        return [self._reader.resolved(part, scope, known) for part in parts]

    def _lifted(self, query: exp.Expr, scope: Scope, known: Mapping[str, Named]) -> tuple[Node, list[exp.Expr]]:
        read = self._reader.query(query, known, scope)
        right, conditions = lifted(_without_distinct(read.plan))
        return _closed(right), conditions

    def value(self, node: exp.Expr, scope: Scope, known: Mapping[str, Named]) -> exp.Expr:
        """A column for the value of a subquery, which `attached` joins where it is used."""
        if isinstance(node, exp.In):
            raise Refused("SUBQUERY_IN_EXPRESSION", "IN with a subquery stands inside of another expression")
        name = self._reader.names.fresh("sub")
        if isinstance(node, exp.Exists):
            self._pending[name] = self._exists(self._reader.query(node.this, known, scope).plan)
        else:
            read = self._reader.query(node, known, scope)
            if len(read.titles) != 1:
                raise Refused("NOT_RESOLVED", "a scalar subquery has one column")
            self._pending[name] = self._scalar(read.plan, read.titles[0].value)
        self._reader.facts.record(Output(name, self._pending[name].value))
        return column(name)

    def _exists(self, plan: Node) -> _Value:
        """Whether there is a row, by counting them."""
        below, conditions = lifted(_without_distinct(plan))
        count = self._reader.output("there", exp.Anonymous(this="count", expressions=[exp.Star()]))
        if not conditions:
            found = exp.GT(this=column(count.name), expression=exp.Literal.number(0))
            return _Value(_closed(Aggregate(below, (), (count,))), (), True, found)
        keys, pairs = self._correlation(below, conditions)
        for output in keys:
            self._reader.facts.record(output)
        there = exp.Not(this=exp.Is(this=column(count.name), expression=exp.Null()))
        return _Value(_closed(Aggregate(below, keys, (count,))), tuple(pairs), False, there)

    def _scalar(self, plan: Node, value: exp.Expr) -> _Value:
        if isinstance(plan, Project):
            outputs = {output.name: output.value for output in plan.outputs}
            value, plan = substituted(value, outputs), plan.child
        if not isinstance(plan, Aggregate) or plan.keys:
            raise Refused("SCALAR_SUBQUERY", "a scalar subquery is not known to have one row (use an aggregate)")
        below, conditions = lifted(plan.child)
        if not conditions:
            return _Value(_closed(plan), (), True, value)
        keys, pairs = self._correlation(below, conditions)
        for output in keys:
            self._reader.facts.record(output)
        count = self._reader.output("there", exp.Anonymous(this="count", expressions=[exp.Star()]))
        grouped = Aggregate(below, keys, (*plan.values, count))
        empty = {output.name: _of_nothing(output.value) for output in plan.values}
        missing = substituted(value, empty)
        found = exp.Not(this=exp.Is(this=column(count.name), expression=exp.Null()))
        case = exp.Case(ifs=[exp.If(this=found, true=value.copy())], default=missing)
        simple = all(isinstance(one, exp.Null) for one in empty.values()) and is_column(value)
        return _Value(_closed(grouped), tuple(pairs), False, value if simple else case)

    def _correlation(self, below: Node, conditions: Sequence[exp.Expr]) -> tuple[tuple[Output, ...], list[exp.Expr]]:
        """What to group by, and the comparisons with the query around."""
        inner = set(below.columns)
        keys: list[Output] = []
        pairs: list[exp.Expr] = []
        for condition in conditions:
            if not isinstance(condition, exp.EQ):
                raise _CORRELATED
            sides = [condition.this, condition.expression]
            own = [side for side in sides if names_in(side) and names_in(side) <= inner]
            other = [side for side in sides if not names_in(side) & inner]
            if len(own) != 1 or len(other) != 1:
                raise _CORRELATED
            key = Output(self._reader.names.fresh("by"), own[0].copy())
            keys.append(key)
            pairs.append(exp.EQ(this=other[0].copy(), expression=column(key.name)))
        return tuple(keys), pairs

    def attached(self, plan: Node, values: Sequence[exp.Expr]) -> tuple[Node, list[exp.Expr]]:
        """The plan joined with the subqueries that expressions use, and the expressions over it."""
        results = [value.copy() for value in values]
        while used := sorted(names_in(*results) & set(self._pending)):
            for name in used:
                pending = self._pending[name]
                if set(pending.plan.columns) <= set(plan.columns):
                    pass
                elif pending.single:
                    plan = Join(plan, pending.plan, "inner", ())
                else:
                    plan = joined(plan, pending.plan, "left", pending.conditions)
                results = [substituted(result, {name: pending.value}) for result in results]
        return plan, results


def free(node: Node) -> frozenset[str]:
    """The columns that a plan reads and does not have: those of the query around."""
    used = frozenset[str]().union(*(names_in(*expressions(part)) for part in walk(node)))
    return used.difference(*(part.columns for part in walk(node)), *(_inside(part) for part in walk(node)))


def _inside(node: Node) -> tuple[str, ...]:
    return tuple(output.name for output in (*node.keys, *node.values)) if isinstance(node, Aggregate) else ()


def _closed(node: Node) -> Node:
    if free(node):
        raise _CORRELATED
    return node


def _without_distinct(node: Node) -> Node:
    return node.child if isinstance(node, Distinct) else node


def lifted(node: Node) -> tuple[Node, list[exp.Expr]]:
    """The plan without its conditions on the query around, and these conditions over its columns."""
    if not free(node):
        return node, []
    match node:
        case Filter():
            below, conditions = lifted(node.child)
            if names_in(node.condition) <= set(node.columns):
                return placed(below, node.condition), conditions
            return below, [*conditions, node.condition]
        case Project():
            below, conditions = lifted(node.child)
            needed = names_in(*conditions) & set(below.columns)
            known = {output.name for output in node.outputs}
            added = tuple(Output(name, column(name)) for name in sorted(needed - known))
            return Project(below, (*node.outputs, *added)), conditions
        case Join(kind="inner"):
            left, conditions = lifted(node.left)
            right, others = lifted(node.right)
            inner = set(left.columns) | set(right.columns)
            own = [part for part in node.condition if names_in(part) <= inner]
            outer = [part for part in node.condition if not names_in(part) <= inner]
            return joined(left, right, "inner", own), [*conditions, *others, *outer]
        case Join(kind="left" | "semi" | "anti"):
            left, conditions = lifted(node.left)
            return replace(node, left=left), conditions
    raise _CORRELATED


def _of_nothing(value: exp.Expr) -> exp.Expr:
    """What an aggregate gives for no rows."""
    counts = ("count", "count_if", "approx_count_distinct", "regr_count")
    call = value.find(exp.Anonymous)
    if call is not None and call.name.lower() in counts:
        return exp.Literal.number(0)
    return exp.null()
