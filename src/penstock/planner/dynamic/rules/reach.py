"""Which columns of a plan can be had of its changed rows without computing its old state?"""

from __future__ import annotations

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
    names_in,
)

Columns = frozenset[str]


def plain_columns(node: Node) -> Columns:  # noqa: PLR0911  # one line per kind of node
    """The columns that hang on single rows of the inputs: no results of aggregates and windows."""
    match node:
        case Scan() | OneRow() | Nothing() | Shared():
            return frozenset(node.columns)
        case Filter() | Distinct() | Window():
            return plain_columns(node.child)
        case Project():
            below = plain_columns(node.child)
            return frozenset(output.name for output in node.outputs if names_in(output.value) <= below)
        case Explode():
            below = plain_columns(node.child)
            return below | set(node.made) if names_in(node.generator) <= below else below
        case Join():
            left = plain_columns(node.left)
            return left if node.kind in ("semi", "anti") else left | plain_columns(node.right)
        case Union() | SetOperation():
            sides = node.parts if isinstance(node, Union) else (node.left, node.right)
            plain = [plain_columns(side) for side in sides]
            return frozenset(
                name
                for place, name in enumerate(node.names)
                if all(side.columns[place] in own for side, own in zip(sides, plain, strict=True))
            )
        case Aggregate():
            below = plain_columns(node.child)
            return frozenset(key.name for key in node.keys if names_in(key.value) <= below)


def reach(node: Node, wanted: Columns) -> Columns:  # noqa: PLR0911  # one line per kind of node
    """The columns that come at no extra cost where the changed rows are asked for `wanted`."""
    match node:
        case Filter():
            return reach(node.child, wanted)
        case Project():
            needed = names_in(*(output.value for output in node.outputs if output.name in wanted))
            below = reach(node.child, needed)
            return wanted | {output.name for output in node.outputs if names_in(output.value) <= below}
        case Join(left=left, right=right, kind=kind):
            if kind in ("semi", "anti") or (kind != "full" and wanted <= set(left.columns)):
                return reach(left, wanted)
            if kind == "inner" and wanted <= set(right.columns):
                return reach(right, wanted)
            return reach(left, wanted & set(left.columns)) | reach(right, wanted & set(right.columns))
        case Window() if wanted <= set(node.partition):
            return wanted
        case Window() | Aggregate() if not wanted <= plain_columns(node):
            return frozenset(node.columns)
        case _:
            return wanted | plain_columns(node)
