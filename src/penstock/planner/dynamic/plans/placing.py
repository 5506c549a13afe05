"""Where in a plan does a condition belong?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import Filter, Join, JoinKind, Node, names_in
from penstock.planner.dynamic.refusals import Refused


def timed(*values: exp.Expr) -> bool:
    """Whether an expression asks for the time of the query."""
    return any(value.find(exp.Placeholder) is not None for value in values)


def placed(node: Node, condition: exp.Expr) -> Node:
    """The rows for which a condition holds; it goes as far down as it can."""
    names = names_in(condition)
    if not names or not names <= set(node.columns):
        return Filter(node, condition)  # a constant, or it hangs on the query around
    match node:
        case Filter() if names_in(node.condition):
            return replace(node, child=placed(node.child, condition))
        case Join(left=left, right=right, kind=kind):
            if names <= set(left.columns) and kind != "full":
                return replace(node, left=placed(left, condition))
            if kind == "inner" and names <= set(right.columns):
                return replace(node, right=placed(right, condition))
            if kind == "inner" and not timed(condition):
                return replace(node, condition=(*node.condition, condition))
    return Filter(node, condition)


def joined(left: Node, right: Node, kind: JoinKind, conditions: Iterable[exp.Expr]) -> Node:
    """The join, with every condition of one side moved into that side if that gives the same rows."""
    kept: list[exp.Expr] = []
    above: list[exp.Expr] = []
    for condition in conditions:
        names = names_in(condition)
        if kind != "full" and names and names <= set(right.columns):
            right = placed(right, condition)
        elif kind in ("inner", "semi") and names and names <= set(left.columns):
            left = placed(left, condition)
        elif not timed(condition):
            kept.append(condition)
        elif kind == "inner":
            above.append(condition)
        else:
            raise Refused("TIME_IN_JOIN", f"a condition of its {kind} join compares both sides with the current time")
    plan: Node = Join(left, right, kind, tuple(kept))
    for condition in above:
        plan = placed(plan, condition)
    return plan
