"""Rules of dynamic tables, each broken in one way that somebody could break it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Aggregate,
    Join,
    Node,
    Nothing,
    Output,
    Project,
    Scan,
    SetOperation,
    column,
    same,
)
from penstock.planner.dynamic.reading import subqueries
from penstock.planner.dynamic.rules import changes, restricting
from penstock.planner.dynamic.rules.states import Step, computed, matched, new, together

Wanted = frozenset[str]


def _still_there(node: Scan, step: Step) -> Node:
    rows = _feed(node, step)
    if isinstance(rows, Nothing):
        return rows
    names = tuple(f"there_{name}" for name in node.names)
    conditions = tuple(same(column(one), column(other)) for one, other in zip(node.names, names, strict=True))
    return Join(rows, replace(node, names=names), "semi", conditions)


def _gone(node: Scan, step: Step) -> Node:
    rows = _still_there(node, step)
    return replace(rows, kind="anti") if isinstance(rows, Join) else rows


_feed = changes.changed_relation
_left_join = changes.changed_left_join
_groups = changes.touched_groups
_restricted_join = restricting._restricted_join


def _one_side(node: Join, wanted: Wanted, step: Step) -> Node:
    conditions = changes.join_conditions(node, step)
    lefts, rights = changes._sides(node, wanted | changes.names_in(*conditions))
    pairs = changes._changed_pairs(node, lefts, rights, conditions, step)
    return changes._in_order(node, wanted, pairs[:1])


def _new_only(node: Node, wanted: Wanted, step: Step) -> Node:
    return changes._new(node, wanted, step)


def _no_flips(node: Any, then: exp.Expr, now: exp.Expr, step: Step) -> Node:
    return Nothing(node.columns)


def _nothing(node: Node, wanted: Wanted, step: Step) -> Node:
    return Nothing(tuple(name for name in node.columns if name in wanted))


def _another_key(node: Aggregate, wanted: Wanted, step: Step) -> Node:
    if len(node.keys) < 2:
        return _groups(node, wanted, step)
    first = node.keys[0].value
    return _groups(replace(node, keys=tuple(Output(key.name, first) for key in node.keys)), wanted, step)


def _groups_there_are(node: Aggregate, wanted: Wanted, step: Step) -> Node:
    rows = _groups(node, wanted, step)
    names = tuple(name for name in node.columns if name in wanted)
    now = Project(changes._new(node, wanted, step), tuple(Output(f"now_{name}", column(name)) for name in names))
    conditions = tuple(same(column(name), column(f"now_{name}")) for name in names)
    return matched(changes.projected(rows, names), now, "semi", conditions) if names else rows


def _rows_with_partner(node: Join, wanted: Wanted, step: Step) -> Node:
    conditions = changes.join_conditions(node, step)
    reads = changes.names_in(*conditions)
    lefts, rights = wanted | reads & frozenset(node.left.columns), reads & frozenset(node.right.columns)
    rows = matched(
        changes.changed(node.left, lefts, step), changes.either(node.right, rights, step), "semi", conditions
    )
    found = changes.partners(node.left, node.right, conditions, wanted, step)
    return changes._in_order(node, wanted, [rows, found])


def _left_only(node: Join, wanted: Wanted, step: Step) -> Node:
    return changes.changed(node.left, wanted, step)


def _now_twice(node: Node, step: Step) -> Node:
    return new(node, step.now)


def _same_rows(node: Any, wanted: Wanted, step: Step) -> Node:
    return changes.changed(node.child, wanted & frozenset(node.child.columns), step)


def _only_first(node: Any, wanted: Wanted, step: Step) -> Node:
    sides = node.parts if hasattr(node, "parts") else (node.left, node.right)
    places = [place for place, name in enumerate(node.names) if name in wanted]
    own = [sides[0].columns[place] for place in places]
    rows = changes.projected(changes.changed(sides[0], frozenset(own), step), own)
    outputs = tuple(Output(node.names[place], column(name)) for place, name in zip(places, own, strict=True))
    return computed(rows, outputs)


def _pairs_only(*arguments: Any) -> list[Node]:
    return []


def _whole_sets(node: Aggregate, wanted: Wanted, step: Step) -> Node:
    return _groups(replace(node, sets=None), wanted, step)


def _into_the_null_side(node: Join, keys: restricting.Keys, listed: restricting.Listed) -> Node:
    if node.kind != "left":
        return _restricted_join(node, keys, listed)
    rights = set(node.right.columns)
    own = {number: value for number, value in keys.items() if changes.names_in(value) <= rights}
    right = restricting.restricted(node.right, own, listed) if own else node.right
    return _restricted_join(replace(node, right=right), keys, listed)


def _any_key_below(node: Any, keys: restricting.Keys, whole: set[str], listed: restricting.Listed) -> Node:
    own = set(node.child.columns)
    below = {number: value for number, value in keys.items() if changes.names_in(value) <= own}
    return replace(node, child=restricting.restricted(node.child, below, listed))


def _equal(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.EQ(this=left.copy(), expression=right.copy())


def _now_alone(node: Project, wanted: Wanted, step: Step) -> Node:
    rows = changes.changed(
        node.child, changes.names_in(*(part.value for part in node.outputs if part.name in wanted)), step
    )
    return computed(rows, changes._at(tuple(part for part in node.outputs if part.name in wanted), step.now))


def _without_unknown(self: Any, plan: Node, node: exp.In, negated: bool, *rest: Any) -> Node:
    found = _member(self, plan, node, negated, *rest)
    if negated and isinstance(found, Join) and isinstance(found.condition[-1], exp.Or):
        return replace(found, condition=(*found.condition[:-1], found.condition[-1].this))
    return found


_member = subqueries.Subqueries._member


def _new_total(node: Aggregate, wanted: Wanted, step: Step) -> Node:
    return changes._new(node, wanted, step)


def _wanted_total(node: Aggregate, wanted: Wanted, step: Step) -> Node:
    names = tuple(name for name in node.columns if name in wanted)
    now, then = (changes.projected(state, names) for state in (new(node, step.now), changes.old_rows(node, step)))
    appeared, gone = (SetOperation(*pair, "except", False, names) for pair in ((now, then), (then, now)))
    return together(appeared, gone) if names else _totals(node, wanted, step)


_totals = changes._changed_totals

MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "only rows after the change": (changes, "changed_relation", _still_there),
    "only rows before the change": (changes, "changed_relation", _gone),
    "keys are compared by plain equality": (restricting, "same", _equal),
    "one side of a join only": (changes, "changed_inner_join", _one_side),
    "an outer join taken for an inner one": (changes, "changed_left_join", changes.changed_inner_join),
    "a full join taken for a left one": (changes, "changed_full_join", _left_join),
    "the other side of a join as it is now only": (changes, "either", _new_only),
    "no time flips": (changes, "time_flips", _no_flips),
    "values that hang on the time as they are now only": (changes, "changed_projection", _now_alone),
    "DISTINCT ignored": (changes, "changed_distinct", _nothing),
    "the group key of another column": (changes, "touched_groups", _another_key),
    "groups that vanished are not looked at": (changes, "touched_groups", _groups_there_are),
    "an anti-join taken for a semi-join": (changes, "changed_semi_join", _rows_with_partner),
    "what EXISTS asks for never changes": (changes, "changed_semi_join", _left_only),
    "aggregates of aggregates without old rows": (changes, "old_rows", _now_twice),
    "a window without the rest of its partition": (changes, "changed_window", _same_rows),
    "NOT IN taken for NOT EXISTS": (subqueries.Subqueries, "_member", _without_unknown),
    "EXCEPT and INTERSECT without their right side": (changes, "changed_set_operation", _only_first),
    "UNION without its other parts": (changes, "changed_union", _only_first),
    "rows that lost their partner are forgotten": (changes, "_alone", _pairs_only),
    "grouping sets taken for one group": (changes, "touched_groups", _whole_sets),
    "a key looked up on the side that may be missing": (restricting, "_restricted_join", _into_the_null_side),
    "a window computed of some rows of its partition": (restricting, "_partly", _any_key_below),
    "totals as they are now only": (changes, "_changed_totals", _new_total),
    "a changed total noticed in its wanted columns only": (changes, "_changed_totals", _wanted_total),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """While it lasts, the rule is broken."""
    owner, attribute, mutant = MUTANTS[name]
    whole = getattr(owner, attribute)
    setattr(owner, attribute, mutant)
    try:
        yield
    finally:
        setattr(owner, attribute, whole)
