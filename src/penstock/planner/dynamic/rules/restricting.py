"""How is a plan computed for some keys only?

`restricted` gives exactly the rows of a plan whose keys are listed. The list is put as far down as it goes: a key that
is a column of a relation, or computed of one, is looked up where that relation is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    Project,
    Scan,
    SetOperation,
    Shared,
    Union,
    Window,
    column,
    is_column,
    names_in,
    same,
    substituted,
)
from penstock.planner.dynamic.plans.kinds import Facts, comparable, kind_of
from penstock.planner.dynamic.plans.names import Names

Keys = Mapping[int, exp.Expr]
"""The number of a key, and its value over the columns of a plan."""


@dataclass(slots=True)
class Listed:
    """A relation of keys, and where it is looked up."""

    relation: Scan | Shared
    facts: Facts
    names: Names
    lookups: list[tuple[Scan, int, exp.Expr]] = field(default_factory=list)
    """What was looked up where relations are read."""

    def semi_join(self, node: Node, keys: Keys) -> Node:
        """The rows whose keys are listed."""
        names = tuple(self.names.fresh("key") for _ in self.relation.names)
        conditions = tuple(same(value, column(names[number])) for number, value in keys.items())
        return Join(node, replace(self.relation, names=names), "semi", conditions)


def restricted(node: Node, keys: Keys, listed: Listed) -> Node:  # noqa: PLR0911  # one line per kind of node
    """The rows of the plan whose keys are listed, no more and no less."""
    if isinstance(node, Nothing) or not keys:
        return node
    match node:
        case Scan():
            listed.lookups += [(node, number, value) for number, value in keys.items()]
            return listed.semi_join(node, keys)
        case Filter() | Distinct():
            return replace(node, child=restricted(node.child, keys, listed))
        case Project():
            values = {output.name: output.value for output in node.outputs}
            below = {number: substituted(value, values) for number, value in keys.items()}
            return replace(node, child=restricted(node.child, below, listed))
        case Explode():
            return _partly(node, keys, set(node.child.columns), listed)
        case Aggregate():
            return _restricted_groups(node, keys, listed)
        case Window():
            return _partly(node, keys, set(node.partition), listed)
        case Union() | SetOperation():
            return _restricted_sides(node, keys, listed)
        case Join():
            return _restricted_join(node, keys, listed)
        case OneRow() | Shared() | Nothing():
            return listed.semi_join(node, keys)


def _partly(node: Explode | Window, keys: Keys, whole: set[str], listed: Listed) -> Node:
    """Keys of `whole` columns go below the node."""
    below = {number: value for number, value in keys.items() if names_in(value) <= whole}
    narrowed = replace(node, child=restricted(node.child, below, listed))
    return narrowed if len(below) == len(keys) else listed.semi_join(narrowed, keys)


def _restricted_groups(node: Aggregate, keys: Keys, listed: Listed) -> Node:
    """A group key goes below the aggregate, unless a grouping set leaves it out; a constant does not.

    An aggregate without groups has its row even if it is given none.
    """
    everywhere = range(len(node.keys)) if node.sets is None else set(range(len(node.keys))).intersection(*node.sets)
    values = {node.keys[place].name: node.keys[place].value for place in everywhere}
    below = {
        number: substituted(value, values)
        for number, value in keys.items()
        if names_in(value) and names_in(value) <= set(values)
    }
    narrowed = replace(node, child=restricted(node.child, below, listed))
    return narrowed if len(below) == len(keys) else listed.semi_join(narrowed, keys)


def _restricted_sides(node: Union | SetOperation, keys: Keys, listed: Listed) -> Node:
    """Each side by the columns in the same places, unless they would be compared as other types there."""
    if not node.alike:
        return listed.semi_join(node, keys)

    def side(child: Node) -> Node:
        own = {name: column(mine) for name, mine in zip(node.names, child.columns, strict=True)}
        return restricted(child, {number: substituted(value, own) for number, value in keys.items()}, listed)

    if isinstance(node, Union):
        return replace(node, parts=tuple(map(side, node.parts)))
    return replace(node, left=side(node.left), right=side(node.right))


def _restricted_join(node: Join, keys: Keys, listed: Listed) -> Node:
    """Keys go to the side that has them, and to the other one where the join makes both equal."""
    left, right = node.left, node.right
    equal = equalities(node, listed.facts)
    if node.kind == "full":
        both = {number: pair for number, value in keys.items() if (pair := _full_key(value, equal))}
        if both:
            left = restricted(left, {number: one for number, (one, _) in both.items()}, listed)
            right = restricted(right, {number: other for number, (_, other) in both.items()}, listed)
        narrowed = replace(node, left=left, right=right)
        return narrowed if len(both) == len(keys) else listed.semi_join(narrowed, keys)
    lefts, rights = set(left.columns), set(right.columns)
    over_left = {number: value for number, value in keys.items() if names_in(value) <= lefts}
    if node.kind == "inner":
        for number, value in keys.items():
            if (
                number not in over_left
                and (mirrored := _mirrored(value, [(r, le) for le, r in equal], listed.facts)) is not None
            ):
                over_left[number] = mirrored
    over_right = {
        number: mirror
        for number, value in keys.items()
        if (mirror := _mirrored(value, equal, listed.facts)) is not None
    }
    if node.kind == "inner":
        over_right |= {number: value for number, value in keys.items() if names_in(value) <= rights}
    narrowed = replace(node, left=restricted(left, over_left, listed), right=restricted(right, over_right, listed))
    done = len(over_left) == len(keys) or (node.kind == "inner" and len(over_right) == len(keys))
    return narrowed if done else listed.semi_join(narrowed, keys)


def equalities(node: Join, facts: Facts) -> list[tuple[exp.Expr, exp.Expr]]:
    """Values of the left and of the right side that are equal in every pair."""
    pairs = []
    lefts, rights = set(node.left.columns), set(node.right.columns)
    for condition in node.condition:
        if not isinstance(condition, exp.EQ | exp.NullSafeEQ):
            continue
        one, other = condition.this.unnest(), condition.expression.unnest()
        if names_in(one) <= rights and names_in(other) <= lefts:
            one, other = other, one
        sided = names_in(one) and names_in(other) and names_in(one) <= lefts and names_in(other) <= rights
        if sided and comparable(kind_of(one, facts.kinds), kind_of(other, facts.kinds)):
            pairs.append((one, other))
    return pairs


def _mirrored(value: exp.Expr, equal: list[tuple[exp.Expr, exp.Expr]], facts: Facts) -> exp.Expr | None:
    """The value over the other side; None when it has none there.

    A column that something is computed of has to have the same type there, or another result could come out.
    """
    for one, other in equal:
        if value == one:
            return other
    own = {
        one.name: other
        for one, other in equal
        if is_column(one) and kind_of(one, facts.kinds) == kind_of(other, facts.kinds)
    }
    return substituted(value, own) if names_in(value) and names_in(value) <= set(own) else None


def _full_key(value: exp.Expr, equal: list[tuple[exp.Expr, exp.Expr]]) -> tuple[exp.Expr, exp.Expr] | None:
    """The two sides of `coalesce(left, right)` where a full join makes them equal."""
    if not (isinstance(value, exp.Anonymous) and value.name.lower() == "coalesce" and len(value.expressions) == 2):
        return None
    first, second = value.expressions
    return next(((one, other) for one, other in equal if {one, other} == {first, second}), None)
