"""Is everything in a query known to give the same result whenever it is computed?"""

from __future__ import annotations

from sqlglot import exp

from penstock.planner.dynamic.plans.functions import (
    AGGREGATES,
    GENERATORS,
    IN_ARRIVAL_ORDER,
    MOMENTS,
    ORDERED,
    ROW_WISE,
    SORTING,
    VOLATILE,
    WINDOWED,
)
from penstock.planner.dynamic.refusals import Refused

_KNOWN: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Star, exp.Alias, exp.Aliases, exp.Paren,
    exp.Cast, exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Case, exp.If, exp.And, exp.Or, exp.Not,
    exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul,
    exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.DPipe,
    exp.Like, exp.ILike, exp.RegexpLike, exp.Escape, exp.Between, exp.In, exp.Is, exp.Bracket, exp.Interval,
    exp.IntervalSpan, exp.Var, exp.Lambda, exp.Ordered, exp.Order, exp.Sort, exp.Cluster, exp.Distribute, exp.Window,
    exp.WindowSpec, exp.Filter, exp.Distinct, exp.Tuple, exp.Exists, exp.Subquery, exp.Select, exp.From, exp.Join,
    exp.Where, exp.Group, exp.Rollup, exp.Cube, exp.GroupingSets, exp.Having, exp.Qualify, exp.With, exp.CTE,
    exp.TableAlias, exp.Table, exp.Union, exp.Except, exp.Intersect, exp.Lateral, exp.Hint, exp.IgnoreNulls,
    exp.RespectNulls, exp.WithinGroup, exp.CurrentTimestamp, exp.CurrentDate, exp.Localtimestamp, exp.Extract,
    exp.Dot, exp.Kwarg, exp.HexString,
)  # fmt: skip
_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Limit: ("LIMIT", "LIMIT keeps rows that depend on the rest of the result"),
    exp.Offset: ("LIMIT", "OFFSET keeps rows that depend on the rest of the result"),
    exp.Fetch: ("LIMIT", "FETCH keeps rows that depend on the rest of the result"),
    exp.TableSample: ("SAMPLE", "TABLESAMPLE takes other rows each time"),
    exp.Values: ("INLINE_TABLE", "there is no rule for VALUES"),
    exp.Pivot: ("PIVOT", "there is no rule for PIVOT and UNPIVOT"),
    exp.Version: ("TIME_TRAVEL", "it reads a fixed version of a table"),
}


def check(tree: exp.Query) -> None:
    """Refuse the first thing that is not known."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            if not isinstance(node.parent, exp.Hint):
                _check_call(node)
        elif type(node) in _REFUSED:
            raise Refused(*_REFUSED[type(node)])
        elif isinstance(node, exp.With) and node.args.get("recursive"):
            raise Refused("RECURSIVE", "there is no rule for recursive queries")
        elif isinstance(node, exp.Dot) and not isinstance(node.expression, exp.Identifier):
            raise Refused("FUNCTION_UNKNOWN", f"{node.sql()} is a function of a catalog")
        elif not isinstance(node, _KNOWN):
            raise Refused("SYNTAX_UNKNOWN", f"there is no rule for {node.key.upper()}")


def _check_call(call: exp.Anonymous) -> None:
    name = call.name.lower()
    above = call.parent
    while isinstance(above, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls)):
        above = above.parent
    if isinstance(above, exp.Window) and above.this is not call.parent and above.this is not call:
        above = None
    in_window = isinstance(above, exp.Window)
    if name in VOLATILE:
        raise Refused("EXPRESSION_NOT_DETERMINISTIC", f"{name}() gives something else each time")
    if name in MOMENTS and (not call.expressions or name != "unix_timestamp"):
        return
    if (in_window and name in WINDOWED) or name in AGGREGATES or name in ROW_WISE or name in GENERATORS:
        return
    if name in ("grouping", "grouping_id", "unix_timestamp"):
        return
    if name in ORDERED:
        _check_ordered(call)
        return
    if name in IN_ARRIVAL_ORDER or name in WINDOWED:
        if in_window and name in ("first", "last"):
            return
        raise Refused("ORDER_DEPENDENT", f"the result of {name}() depends on the order in which rows arrive")
    raise Refused("FUNCTION_UNKNOWN", f"{name}() is not known to be deterministic")


def _check_ordered(call: exp.Anonymous) -> None:
    name, above = call.name.lower(), call.parent
    if isinstance(above, exp.WithinGroup):
        return
    if isinstance(above, exp.Filter):
        above = above.parent
    if isinstance(above, exp.Anonymous) and above.name.lower() in SORTING and len(above.expressions) == 1:
        return
    raise Refused(
        "ORDER_DEPENDENT", f"the result of {name}() depends on the order in which rows arrive; sort it with sort_array"
    )
