"""What rows does a FROM clause give, and under which names?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import JoinKind, Node, conjuncts
from penstock.planner.dynamic.plans.functions import GENERATORS
from penstock.planner.dynamic.plans.placing import joined
from penstock.planner.dynamic.reading.scope import Relation, Scope, Title, only, renamed
from penstock.planner.dynamic.refusals import Refused

if TYPE_CHECKING:
    from penstock.planner.dynamic.reading.queries import Named, Reader


def from_clause(reader: Reader, node: exp.Select, known: Mapping[str, Named], scope: Scope) -> Node:
    """The rows that a SELECT begins with; `scope` learns their names."""
    first = node.args["from_"].this
    plan, relation = _relation(reader, first, known)
    scope.add(relation)
    for join in [*(first.args.get("joins") or []), *(node.args.get("joins") or [])]:
        plan = _joined(reader, plan, join, known, scope)
    for lateral in [*(first.args.get("laterals") or []), *(node.args.get("laterals") or [])]:
        plan = _lateral_view(reader, plan, lateral, known, scope)
    return plan


def _relation(reader: Reader, node: exp.Expr, known: Mapping[str, Named]) -> tuple[Node, Relation]:
    alias = node.args.get("alias")
    columns = [name.name for name in alias.columns] if alias is not None else []
    match node:
        case exp.Table():
            table = node.copy()
            table.set("joins", None)
            table.set("laterals", None)
            read = reader.relation(table, known)
        case exp.Subquery():
            bare = exp.Subquery(this=node.this, with_=node.args.get("with_"))
            only(node, "this", "alias", "with_", "joins", "laterals")
            read = reader.query(bare, known, None)
        case exp.Lateral():
            raise Refused("LATERAL", "there is no rule for LATERAL in FROM (write LATERAL VIEW)")
        case _:
            raise Refused("SYNTAX_UNKNOWN", f"there is no rule for {node.key.upper()} in FROM")
    return read.plan, Relation(node.alias_or_name.lower(), renamed(read.titles, columns))


def _joined(reader: Reader, left: Node, join: exp.Join, known: Mapping[str, Named], scope: Scope) -> Node:
    only(join, "this", "side", "kind", "method", "on", "using")
    if join.method not in ("", "NATURAL"):
        raise Refused("SYNTAX_UNKNOWN", f"there is no rule for a {join.method} JOIN")
    right, relation = _relation(reader, join.this, known)
    kind = _kind(join)
    before = list(scope.shown)
    matched = _matched(join, before, relation)
    conditions: list[exp.Expr] = [
        exp.EQ(this=one.value.copy(), expression=other.value.copy()) for one, other in matched
    ]
    scope.add(relation)
    if join.args.get("on"):
        for part in conjuncts(join.args["on"]):
            condition = reader.resolved(part, scope, known)
            if reader.subqueries.pending_in(condition):
                raise Refused("SUBQUERY_IN_JOIN", "the condition of a join has a subquery")
            conditions.append(condition)
    if kind in ("semi", "anti"):
        scope.relations.remove(relation)
        scope.shown = before
        return joined(left, right, kind, conditions)
    if matched:
        scope.shown = _merged(join.side, matched, before, relation)
    if join.side == "RIGHT":
        return joined(right, left, "left", conditions)
    return joined(left, right, kind, conditions)


def _kind(join: exp.Join) -> JoinKind:
    if join.kind in ("SEMI", "ANTI"):
        if join.side not in ("", "LEFT"):
            raise Refused("SYNTAX_UNKNOWN", f"there is no rule for a {join.side} {join.kind} JOIN")
        return "semi" if join.kind == "SEMI" else "anti"
    if join.side == "FULL":
        return "full"
    if join.side in ("LEFT", "RIGHT"):
        return "left"
    if join.kind in ("", "INNER", "CROSS"):
        return "inner"
    raise Refused("SYNTAX_UNKNOWN", f"there is no rule for a {join.kind} JOIN")


def _matched(join: exp.Join, left: list[Title], right: Relation) -> list[tuple[Title, Title]]:
    """The pairs of columns that USING or NATURAL compares."""
    if join.method == "NATURAL":
        names = [title.key for title in left if any(other.key == title.key for other in right.titles)]
    else:
        names = [name.name.lower() for name in join.args.get("using") or []]
    pairs = []
    for name in dict.fromkeys(names):
        sides = [[title for title in titles if title.key == name] for titles in (left, right.titles)]
        if any(len(side) != 1 for side in sides):
            raise Refused("NOT_RESOLVED", f"{name} is not one column on each side of a join")
        pairs.append((sides[0][0], sides[1][0]))
    return pairs


def _merged(side: str, matched: list[tuple[Title, Title]], left: list[Title], right: Relation) -> list[Title]:
    """What a star shows after USING: the compared columns once, then the others."""
    names = {one.key for one, _ in matched}
    first = [Title(one.title, _value(side, one, other)) for one, other in matched]
    return [*first, *(title for title in (*left, *right.titles) if title.key not in names)]


def _value(side: str, left: Title, right: Title) -> exp.Expr:
    if side == "FULL":
        return exp.Anonymous(this="coalesce", expressions=[left.value.copy(), right.value.copy()])
    return right.value if side == "RIGHT" else left.value


def _lateral_view(reader: Reader, plan: Node, lateral: exp.Lateral, known: Mapping[str, Named], scope: Scope) -> Node:
    only(lateral, "this", "view", "outer", "alias")
    call = lateral.this
    if not lateral.args.get("view") or not (isinstance(call, exp.Anonymous) and call.name.lower() in GENERATORS):
        raise Refused("LATERAL", "there is a rule for LATERAL VIEW of generators only")
    alias = lateral.args["alias"]
    names = [name.name for name in alias.columns]
    if not names:
        raise Refused("SYNTAX_UNKNOWN", f"the columns of {call.name}() need names (write AS)")
    generator = reader.resolved(call, scope, known)
    plan, titles = reader.exploded(plan, generator, bool(lateral.args.get("outer")), names)
    scope.add(Relation(alias.name.lower(), tuple(titles)))
    return plan
