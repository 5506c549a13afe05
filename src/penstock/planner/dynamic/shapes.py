"""What is a query called?"""

from __future__ import annotations

from penstock.planner.dynamic.plans.algebra import (
    Aggregate,
    Distinct,
    Explode,
    Filter,
    Join,
    Node,
    Project,
    SetOperation,
    Union,
    Window,
    children,
)


def shape_of(plan: Node) -> str:
    """Its operations from the outermost to the innermost, as people call them."""
    words: list[str] = []
    node: Node | None = plan
    while node is not None:
        word = _word(node)
        if word and (not words or words[-1] != word):
            words.append(word)
        below = children(node)
        node = max(below, key=_depth) if below else None
    return " of ".join(words) or "projection"


def _word(node: Node) -> str:  # noqa: PLR0911  # one line per kind of node
    match node:
        case Aggregate():
            return "aggregate" if node.keys else "ungrouped aggregate"
        case Join():
            return {"semi": "semi-join", "anti": "anti-join"}.get(node.kind, "join")
        case Window():
            return "window"
        case Distinct():
            return "distinct"
        case Union():
            return "union"
        case SetOperation():
            return node.kind
        case Explode():
            return "explode"
        case _:
            return ""


def _depth(node: Node) -> int:
    own = 0 if isinstance(node, Filter | Project) else 1
    return own + max((_depth(child) for child in children(node)), default=0)
