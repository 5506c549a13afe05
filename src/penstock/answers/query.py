"""Answers one SELECT over the tables and sources, all at one moment."""

from __future__ import annotations

from difflib import get_close_matches

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from penstock.engine.spark.query import MOST_ROWS, MOST_SECONDS, Limits
from penstock.engine.values.job import InputRead
from penstock.errors import UsageError
from penstock.project.reading.depth import reading
from penstock.runtime.place.workspace import Workspace
from penstock.values.records import StateView


def query(
    workspace: Workspace, sql: str, most_rows: int = MOST_ROWS, seconds: int = MOST_SECONDS
) -> list[dict[str, object]]:
    """One SELECT: our tables at the accepted snapshot, sources at the observed one."""
    with reading(sql, _refused):
        tree = _select(sql)
    view = workspace.state.views.whole()
    with reading(sql, _refused):
        asked, reads = _asked(workspace, tree, view)
    return workspace.engine.questions.query(asked, reads, Limits(rows=most_rows, seconds=seconds))


def _refused(why: object, _: int = 1) -> UsageError:
    return UsageError(f"the query cannot be read: {why}")


def _asked(workspace: Workspace, tree: exp.Query, view: StateView) -> tuple[str, tuple[InputRead, ...]]:
    """The query over views, and what they read."""
    reads: dict[str, InputRead] = {}
    for table in _tables(tree):
        name = _name(workspace, table)
        if name not in reads:
            reads[name] = _read(workspace, view, name, f"penstock_q_{len(reads)}")
        _point(table, reads[name].view)
    return tree.sql(dialect="spark"), tuple(reads.values())


def _point(table: exp.Table, view: str) -> None:
    """Let a table in the query mean the view; joins, samples and aliases that hang on it stay."""
    if table.args.get("version") or table.args.get("when"):
        raise UsageError(
            f"{table.name}: query reads what is accepted now, not an older snapshot", hint="leave out AS OF"
        )
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
    table.set("this", exp.to_identifier(view, quoted=True))
    table.set("db", None)


def _select(sql: str) -> exp.Query:
    try:
        trees = [tree for tree in sqlglot.parse(sql, dialect="spark") if tree is not None]
    except SqlglotError as error:
        raise _refused(error) from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Query):
        raise UsageError("query takes exactly one SELECT", hint="no other statement, and only one")
    if tree.find(exp.Insert, exp.Create, exp.Drop, exp.Delete, exp.Update, exp.Merge, exp.Into):
        raise UsageError("query takes a SELECT that changes nothing")
    return tree


def _tables(tree: exp.Query) -> list[exp.Table]:
    """The tables that are not names of a CTE."""
    tables: dict[int, exp.Table] = {}
    for scope in traverse_scope(tree):
        for table in scope.tables:
            shadowed = not table.db and isinstance(scope.sources.get(table.alias_or_name), type(scope))
            if not shadowed:
                tables[id(table)] = table
    return list(tables.values())


def _name(workspace: Workspace, table: exp.Table) -> str:
    if not isinstance(table.this, exp.Identifier) or table.catalog:
        raise UsageError(f"there is no table {table.sql(dialect='spark')} in this project")
    wanted = f"{table.db}.{table.name}" if table.db else table.name
    models = workspace.project.graph.models
    fits = [name for name in models if wanted in (name, name.split(".")[1])]
    if len(fits) == 1:
        return fits[0]
    near = fits or get_close_matches(wanted, [*models, *(name.split(".")[1] for name in models)], n=3, cutoff=0.4)
    raise UsageError(
        f"{wanted} is more than one table" if fits else f"there is no table {wanted} in this project",
        hint=f"nearest: {', '.join(near)}" if near else f"there are {', '.join(models)}",
    )


def _read(workspace: Workspace, view: StateView, name: str, alias: str) -> InputRead:
    pin = workspace.resolver.pin(name, view, serving=True)
    if pin is None:
        raise UsageError(f"{name} has no rows yet", hint=f"penstock explain {name} says what it waits for")
    return workspace.resolver.reading(alias, name, pin)
