"""Which rules must the new rows of a model keep?"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from penstock.project.keys import values
from penstock.project.keys.names import UnresolvedName, resolve
from penstock.project.keys.settings import Kind
from penstock.project.reading.documents import Items, Node, Table
from penstock.project.reading.problems import Problems
from penstock.values.models import Check


def built_checks(
    node: Node | None, model: str, known: Collection[str], databases: Mapping[Kind, str], problems: Problems
) -> tuple[Check, ...]:
    """The checks as values. Arguments by kind: `columns`; `column, values`; `column, to, field`; `min, max`; `sql`."""
    made: list[Check] = []
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
            made.append(check)
    return tuple(made)


def _check(item: Table, severity: Literal["error", "warn"]) -> Check | None:
    for kind, node in item.entries.items():
        match kind:
            case "not_null" | "unique":
                return Check(kind, {"columns": values.texts(node)}, severity)
            case "accepted_values":
                listed = values.inside(node, "values")
                allowed = tuple(values.value(one) for one in listed.items) if isinstance(listed, Items) else ()
                return Check(kind, {"column": values.typed(values.inside(node, "column")), "values": allowed}, severity)
            case "relationships":
                return Check(
                    kind, {key: values.typed(values.inside(node, key)) for key in ("column", "to", "field")}, severity
                )
            case "row_count":
                table = values.table(node)
                limits = {key: values.value(one) for key, one in table.entries.items()} if table else {}
                return Check(kind, limits, severity)
            case "expression":
                return Check(kind, {"sql": values.typed(node)}, severity)
    return None
