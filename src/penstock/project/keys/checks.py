"""Which rules must the new rows of a model keep? The shapes of their keys are `CHECK_SHAPES` in `keys.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from penstock.project.keys import values
from penstock.project.keys.keys import CHECK_SHAPES, COLUMNS
from penstock.project.keys.names import UnresolvedName, resolve
from penstock.project.keys.settings import Kind
from penstock.project.reading.documents import Items, Node, Table
from penstock.project.reading.problems import Problems
from penstock.values.models import Check


def built_checks(
    node: Node | None, model: str, known: Collection[str], databases: Mapping[Kind, str], problems: Problems
) -> tuple[Check, ...]:
    """The checks as values. A mapping is their argument as it is; names are `columns`, and a text is `sql`."""
    checks: list[Check] = []
    for item in node.items if isinstance(node, Items) else ():
        if not isinstance(item, Table):
            continue
        severe = values.typed(item.get("severity")) != "warn"
        check = _check(item, "error" if severe else "warn")
        target = check.argument.get("to") if check else None
        if check is not None and isinstance(target, str):
            try:
                check = Check(check.kind, {**check.argument, "to": resolve(target, known, databases)}, check.severity)
            except UnresolvedName as error:
                problems.add(item.where, f"a check of {model}: {error}")
                check = None
        if check is not None:
            checks.append(check)
    return tuple(checks)


def _check(item: Table, severity: Literal["error", "warn"]) -> Check | None:
    kind = next((key for key in item.entries if key in CHECK_SHAPES), None)
    return None if kind is None else Check(kind, _argument(kind, item.entries[kind]), severity)


def _argument(kind: str, node: Node) -> Mapping[str, object]:
    if CHECK_SHAPES[kind] is COLUMNS:
        return {"columns": values.texts(node)}
    if isinstance(node, Table):
        return {key: _plain(value) for key, value in node.entries.items()}
    return {"sql": values.typed(node)}


def _plain(node: Node) -> object:
    return tuple(values.value(item) for item in node.items) if isinstance(node, Items) else values.value(node)
