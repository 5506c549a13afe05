"""Where are the rows that meet a condition?"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.engine.spark.portable import position_kind
from penstock.engine.spark.query import Limits
from penstock.engine.values.positions import PositionField
from penstock.engine.values.predicate import as_position
from penstock.errors import QueryError, UsageError
from penstock.project.reading.depth import reading
from penstock.runtime.place.workspace import Workspace
from penstock.values.intervals import IntervalSet
from penstock.values.tasks import Pin

_HINT = "for example --where \"country = 'NO' and amount is null\""
_VIEW = "penstock_matched"
_MOST_CELLS = 1_000_000
_NOT_A_CONDITION = (exp.Query, exp.Table, exp.AggFunc, exp.Window, exp.Alias, exp.Command, exp.Star, exp.Placeholder)


def condition(text: str) -> str:
    """`text`, once it is sure that it is one condition about the columns of a row.

    It is Spark's to read, so its spelling stays: what another program makes of quotes may mean something else.
    """
    with reading(text, _refused):
        _check(text)
    return text.strip()


def _check(text: str) -> None:
    try:
        trees = [tree for tree in sqlglot.parse(text, dialect="spark") if tree is not None]
    except SqlglotError as error:
        raise _refused(str(error).splitlines()[0]) from None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Condition) or isinstance(tree, (exp.Literal, exp.Tuple)):
        raise UsageError(f"--where takes one condition, not {text.strip() or 'nothing'}", hint=_HINT)
    if (part := tree.find(*_NOT_A_CONDITION)) is not None:
        what = {exp.AggFunc: "an aggregate", exp.Window: "a window", exp.Query: "a query"}
        named = next((name for kind, name in what.items() if isinstance(part, kind)), part.sql(dialect="spark"))
        raise UsageError(f"--where takes a condition about single rows, without {named}", hint=_HINT)


def _refused(why: str, _: int = 1) -> UsageError:
    return UsageError(f"--where cannot be read: {why}", hint=_HINT)


def matching(workspace: Workspace, name: str, pin: Pin, where: str, grid: int) -> IntervalSet:
    """The cells of `grid` in which rows of the table meet the condition; rows without a position are nowhere."""
    read = workspace.resolver.reading(_VIEW, name, pin)
    if read.position is None:
        raise UsageError(
            f"{name} has no position: --where cannot tell which ranges hold its rows", hint="leave out --where"
        )
    kind = position_kind(read, read.position, workspace.resolver.storage)
    at = as_position(PositionField(read.position.name, read.position.name, kind))
    cell = f"{at} - (({at} % {grid}) + {grid}) % {grid}" if grid > 1 else at
    sql = f"select distinct {cell} as cell from {_VIEW} where {at} is not null and (\n{condition(where)}\n)"
    try:
        rows = workspace.engine.questions.query(sql, (read,), Limits(rows=_MOST_CELLS))
    except QueryError as error:
        raise UsageError(f"--where cannot be evaluated on {name}: {error.message}", hint=error.hint) from error
    starts = [int(str(row["cell"])) for row in rows]
    return IntervalSet.of((start, start + grid) for start in starts)
