"""Does one query over many chunks give the same rows as one query per chunk?"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.project.queries.analysis import Facts
from penstock.values.models.axis import SECOND


@dataclass(frozen=True, slots=True)
class Proof:
    holds: bool
    reason: str
    grain: int | None = None


_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400, "DD": 86400}
# Weeks, months and years are left out: they do not start at multiples of their length since 1970.
_CLAUSES = frozenset({"expressions", "from_", "where", "group", "having", "order", "hint"})
_AGGREGATES = (
    exp.Count,
    exp.CountIf,
    exp.Sum,
    exp.Avg,
    exp.Min,
    exp.Max,
    exp.Stddev,
    exp.StddevPop,
    exp.StddevSamp,
    exp.Variance,
    exp.VariancePop,
    exp.LogicalAnd,
    exp.LogicalOr,
)
_ROW_WISE = (
    exp.Abs, exp.Ceil, exp.Floor, exp.Round, exp.Sqrt, exp.Pow, exp.Exp, exp.Ln, exp.Log, exp.Sign,
    exp.Greatest, exp.Least, exp.Coalesce, exp.If, exp.Nullif, exp.Case,
    exp.Cast, exp.TryCast, exp.Upper, exp.Lower, exp.Length, exp.Trim, exp.Substring, exp.Concat, exp.ConcatWs,
    exp.Initcap, exp.Left, exp.Right, exp.Hex, exp.Unhex, exp.MD5, exp.SHA, exp.SHA2, exp.Year, exp.Month, exp.Day,
    exp.Hour, exp.Minute, exp.Second, exp.DateAdd, exp.DateSub, exp.DateDiff, exp.TimestampTrunc, exp.DateTrunc,
    exp.TsOrDsToDate, exp.UnixSeconds, exp.StrToUnix, exp.RegexpExtract, exp.RegexpReplace, exp.RegexpLike,
    exp.JSONExtract, exp.JSONExtractScalar, exp.Array, exp.ArraySize, exp.Struct, exp.And, exp.Or,
)  # fmt: skip
_ROW_WISE_NAMES = frozenset(
    {"timestamp_seconds", "pmod", "get_json_object", "unix_millis", "timestamp_millis", "replace"}
)
_EXACT_TYPES = (exp.DType.BIGINT, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ)
_REFUSED = (
    (exp.Window, "it has a window function"),
    (exp.Query, "it has a sub-query"),
    (exp.Lateral, "it has LATERAL VIEW"),
    (exp.TableSample, "it samples rows"),
    (exp.Placeholder, "it has a parameter"),
)


def widening(tree: exp.Query, facts: Facts) -> Proof:
    """Holds only where it can be proven; the reason says what stood in the way."""
    obstacle = facts.obstacle or _obstacle(tree)
    if obstacle is None and facts.input_position is None:
        obstacle = "it does not read exactly one positioned input"
    if obstacle is not None or not isinstance(tree, exp.Select):
        return Proof(False, obstacle or "it is not a plain SELECT")
    alias = tree.args["from_"].this.alias_or_name.lower()
    return _by_position(tree, _Scope((facts.input_position or "").lower(), alias, facts.axis == SECOND), facts)


def _by_position(tree: exp.Select, scope: _Scope, facts: Facts) -> Proof:
    outputs = {column.output_name.lower(): column.unalias() for column in tree.expressions}
    grain = scope.output_grain(facts.position.lower(), outputs, tree)
    if grain is None:
        return Proof(False, f"{facts.position} is not the input's position, nor that rounded down to a fixed length")
    if facts.align % grain:
        return Proof(False, f"{facts.position} comes in steps of {grain}, which do not divide {facts.align}", grain)
    if not _aggregates(tree):
        return Proof(True, "it is row-wise", grain)
    keys = (scope.grain(key) for key in _group_keys(tree, outputs, scope))
    if any(key is not None and facts.align % key == 0 for key in keys):
        return Proof(True, f"it groups by {facts.position} in steps that fit the chunks", grain)
    return Proof(False, f"it does not group by {facts.position}", grain)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The one input of a query: its position column and the name it goes by."""

    position: str
    alias: str
    timed: bool

    def output_grain(self, name: str, outputs: dict[str, exp.Expr], tree: exp.Select) -> int | None:
        if name in outputs:
            return self.grain(outputs[name])
        stars = [
            column for column in tree.expressions if isinstance(column, exp.Star) and not any(column.args.values())
        ]
        return 1 if name == self.position and stars and not _aggregates(tree) else None

    def grain(self, node: exp.Expr) -> int | None:
        """The length to whose multiples `node` rounds the input's position down; None when it does something else."""
        plain = node.unnest()
        if isinstance(plain, exp.Column):
            own = plain.table.lower() in ("", self.alias)
            return 1 if own and plain.name.lower() == self.position else None
        step = self._step(plain)
        inner = self.grain(step[0]) if step is not None else None
        if step is None or inner is None:
            return None
        if step[1] % inner == 0:
            return step[1]
        return inner if inner % step[1] == 0 else None

    def _step(self, node: exp.Expr) -> tuple[exp.Expr, int] | None:
        """What the outermost function rounds down, and to multiples of what; 1 leaves it as it is."""
        length: int | None = None
        argument = node.this
        match node:
            case exp.TimestampTrunc() if self.timed:
                length = _UNITS.get(node.text("unit").upper())
            case exp.TsOrDsToDate() if self.timed:
                length = 86400
            case exp.Cast() if node.to.this == exp.DType.DATE:
                length = 86400 if self.timed else None
            case exp.Cast() if node.to.this in _EXACT_TYPES:
                length = 1
            case exp.UnixSeconds() | exp.StrToUnix() if self.timed:
                length = 1
            case exp.Anonymous(this=str(name)) if name.lower() == "timestamp_seconds" and len(node.expressions) == 1:
                argument, length = node.expressions[0], 1
            case exp.Mul():
                argument, length = _floored(node)
        return (argument, length) if length and isinstance(argument, exp.Expr) else None


def _floored(node: exp.Mul) -> tuple[exp.Expr, int | None]:
    """`floor(x / n) * n`"""
    low, size = node.this.unnest(), _whole(node.expression)
    divided = low.this.unnest() if isinstance(low, exp.Floor) and not low.args.get("decimals") else None
    if isinstance(divided, exp.Div) and _whole(divided.expression) == size:
        return divided.this, size
    return node, None


def _whole(node: exp.Expr) -> int | None:
    plain = node.unnest()
    number = plain.name if isinstance(plain, exp.Literal) and not plain.is_string else ""
    return int(number) if number.isdigit() and int(number) > 0 else None


def _obstacle(tree: exp.Query) -> str | None:
    if not isinstance(tree, exp.Select):
        return "it is not a plain SELECT"
    unknown = sorted(name for name, value in tree.args.items() if value and name not in _CLAUSES)
    if unknown:
        return f"it has {unknown[0].strip('_').upper()}"
    origin = tree.args.get("from_")
    table = origin.this if isinstance(origin, exp.From) else None
    if not isinstance(table, exp.Table) or table.args.get("joins") or table.args.get("sample"):
        return "it does not read exactly one table"
    refusals = (reason for node in tree.walk() if node is not tree and (reason := _refusal(node)) is not None)
    return next(refusals, None) or _odd_grouping(tree)


def _refusal(node: exp.Expr) -> str | None:
    for kind, reason in _REFUSED:
        if isinstance(node, kind):
            return reason
    if isinstance(node, exp.Distinct):
        return None if isinstance(node.parent, _AGGREGATES) else "it has DISTINCT"
    if isinstance(node, exp.Anonymous):
        return (
            None
            if node.name.lower() in _ROW_WISE_NAMES
            else f"{node.name}() is not known to be the same over several chunks"
        )
    if isinstance(node, exp.Func) and not isinstance(node, (*_ROW_WISE, *_AGGREGATES)):
        return f"{node.sql_name().lower()}() is not known to be the same over several chunks"
    return "it asks for the time" if isinstance(node, exp.StrToUnix) and node.this is None else None


def _odd_grouping(tree: exp.Select) -> str | None:
    group = tree.args.get("group")
    if group is None:
        return None
    odd = sorted(name for name, value in group.args.items() if value and name not in ("expressions", "all"))
    return f"it groups with {odd[0].upper()}" if odd else None


def _aggregates(tree: exp.Select) -> bool:
    return tree.args.get("group") is not None or tree.find(exp.AggFunc) is not None


def _group_keys(tree: exp.Select, outputs: dict[str, exp.Expr], scope: _Scope) -> list[exp.Expr]:
    """The expressions a query groups by, with ordinals, names of outputs and ALL written out."""
    group = tree.args.get("group")
    if group is None:
        return []
    if group.args.get("all"):
        return [column.unalias() for column in tree.expressions if column.find(exp.AggFunc) is None]
    keys: list[exp.Expr] = []
    for key in group.expressions:
        ordinal = _whole(key)
        named = isinstance(key, exp.Column) and not key.table and key.name.lower() != scope.position
        if ordinal is not None and ordinal <= len(tree.expressions):
            keys.append(tree.expressions[ordinal - 1].unalias())
        elif named and key.name.lower() in outputs:
            # Spark prefers an input column of that name; then the query would not be valid, as the output is no key.
            keys.append(outputs[key.name.lower()])
        else:
            keys.append(key)
    return keys
