"""Which rows did added rows of the inputs add?"""

from __future__ import annotations

from dataclasses import replace

from penstock.planner.dynamic.plans.algebra import (
    Explode,
    Filter,
    Join,
    Node,
    Nothing,
    OneRow,
    Project,
    Scan,
    Union,
    expressions,
    walk,
)
from penstock.planner.dynamic.plans.placing import timed
from penstock.planner.dynamic.rules.states import (
    CHANGES,
    Step,
    computed,
    filtered,
    matched,
    new,
    old,
    parts_together,
    together,
)


def monotone(plan: Node) -> bool:
    """Whether added rows only ever add rows, each as often as the rows it is made of."""
    return all(
        isinstance(node, Scan | Filter | Project | Explode | OneRow | Union)
        or (isinstance(node, Join) and node.kind == "inner")
        for node in walk(plan)
    ) and not any(timed(*expressions(node)) for node in walk(plan))


def appended(node: Node, step: Step) -> Node:  # noqa: PLR0911  # one line per kind of node
    """The rows that a monotone plan has more than it had, each as often as it was added."""
    match node:
        case Scan() if node.source in step.changed:
            return replace(node, relation=f"{node.source}{CHANGES}")
        case Filter():
            return filtered(appended(node.child, step), node.condition)
        case Project():
            return computed(appended(node.child, step), node.outputs)
        case Explode():
            below = appended(node.child, step)
            return below if isinstance(below, Nothing) else replace(node, child=below)
        case Join():
            left, right = appended(node.left, step), appended(node.right, step)
            return together(
                matched(left, new(node.right, step.now), "inner", node.condition),
                matched(old(node.left, step), right, "inner", node.condition),
            )
        case Union():
            return parts_together(node, node.parts, [appended(part, step) for part in node.parts], step)
    return Nothing(node.columns)
