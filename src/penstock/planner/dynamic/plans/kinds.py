"""Which type does an expression have, and is its value the same to the last bit whenever it is computed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import Output, names_in
from penstock.planner.dynamic.plans.functions import AGGREGATES, EXACT, ORDERED, SUMS

_AGGREGATE_NAMES = AGGREGATES | ORDERED
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SYNONYMS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float"}
_BOOLEANS = (
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Is, exp.In, exp.Between, exp.Like, exp.RegexpLike, exp.Exists,
)  # fmt: skip
_RESULTS = {
    "bigint": "count count_if approx_count_distinct regr_count unix_seconds unix_millis unix_micros xxhash64",
    "boolean": "bool_and bool_or every any some isnull isnotnull contains startswith endswith",
    "string": "upper lower concat_ws substring substr trim ltrim rtrim date_format hex md5 sha1 sha2 regexp_replace",
    "date": "to_date date_add date_sub last_day make_date date",
    "timestamp": "timestamp_seconds timestamp_millis timestamp_micros to_utc_timestamp from_utc_timestamp timestamp",
    "int": "year month day dayofmonth dayofweek dayofyear hour minute second length datediff size row_number rank"
    " dense_rank ntile",
}
_FIXED = {name: kind for kind, names in _RESULTS.items() for name in names.split()}
_LIKE_ARGUMENTS = frozenset(
    "coalesce nvl ifnull greatest least nullif nullifzero zeroifnull abs negative mod pmod".split()  # noqa: SIM905
)


def plain(kind: str | None) -> str | None:
    """A type as it is compared here."""
    if kind is None:
        return None
    text = kind.lower().strip()
    return _SYNONYMS.get(text, text)


def comparable(left: str | None, right: str | None) -> bool:
    """Whether values of two types are compared without changing them."""
    if left is None or right is None:
        return False
    return (left == right and left != "decimal") or (left in _WHOLE and right in _WHOLE)


def typed_null(kind: str | None) -> exp.Expr | None:
    """NULL of a type; None where the type is not known well enough."""
    return None if kind in (None, "decimal") else exp.cast(exp.null(), kind, dialect="spark")


def exact(kind: str | None) -> bool:
    """Whether a sum of such values is the same in whatever order they are added."""
    return kind is not None and (kind in _WHOLE or kind.startswith("decimal"))


def unfit_for_key(kind: str | None) -> str | None:
    """Why values of a type cannot tell rows apart; None when they can."""
    if kind is None:
        return None
    if "map<" in kind or kind.startswith("variant"):
        return "MAP_KEY"
    return "COLLATED_KEY" if " collate " in kind else None


@dataclass(slots=True)
class Facts:
    """What is known of the columns of a plan."""

    kinds: dict[str, str | None] = field(default_factory=dict)
    inexact: set[str] = field(default_factory=set)
    """Columns that may come out differently when they are computed again: sums of floats, and what ties decide."""

    def record(self, output: Output) -> None:
        self.kinds[output.name] = kind_of(output.value, self.kinds)
        if names_in(output.value) & self.inexact or _inexact(output.value, self.kinds):
            self.inexact.add(output.name)

    def copy_of(self, name: str, like: str) -> None:
        self.kinds[name] = self.kinds.get(like)
        if like in self.inexact:
            self.inexact.add(name)


def comparable_again(name: str, facts: Facts) -> bool:
    """Whether a column is the same to the last bit when it is computed again, and of a type that can be compared."""
    return name not in facts.inexact and unfit_for_key(facts.kinds.get(name)) is None


def _inexact(value: exp.Expr, kinds: Mapping[str, str | None]) -> bool:
    return any(
        not _call_is_exact(call, kinds)
        for call in value.find_all(exp.Anonymous)
        if call.name.lower() in _AGGREGATE_NAMES
    )


def _call_is_exact(call: exp.Anonymous, kinds: Mapping[str, str | None]) -> bool:
    name = call.name.lower()
    if name not in SUMS:
        return name in EXACT
    arguments = [argument for node in call.expressions for argument in _plain_arguments(node)]
    known = [kind_of(argument, kinds) for argument in arguments]
    if name in ("sum", "try_sum"):
        return all(map(exact, known))
    return name in ("avg", "mean", "try_avg") and all(kind is not None and kind.startswith("decimal") for kind in known)


def _plain_arguments(node: exp.Expr) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Distinct) else [node]


def kind_of(value: exp.Expr, kinds: Mapping[str, str | None]) -> str | None:  # noqa: PLR0911  # one line per kind of value
    """The type as Spark writes it, `decimal` where its precision is not followed; None when it is not known here."""
    match value:
        case exp.Column():
            return kinds.get(value.name)
        case exp.Paren() | exp.Filter() | exp.Window() | exp.IgnoreNulls():
            return kind_of(value.this, kinds)
        case exp.Cast():
            return plain(value.args["to"].sql(dialect="spark"))
        case exp.Boolean():
            return "boolean"
        case exp.Literal():
            return _literal(value)
        case exp.Neg():
            return kind_of(value.this, kinds)
        case exp.Add() | exp.Sub() | exp.Mul() | exp.Mod():
            wider = _wider([value.this, value.expression], kinds)
            return wider if exact(wider) else None
        case exp.IntDiv():
            return "bigint"
        case exp.Case():
            branches = [branch.args["true"] for branch in value.args["ifs"]]
            default = value.args.get("default")
            return _wider([*branches, default] if default is not None else branches, kinds)
        case exp.Anonymous():
            return _call(value, kinds)
        case exp.Placeholder():
            return str(value.this)
        case exp.DPipe():
            return "string"
    return "boolean" if isinstance(value, _BOOLEANS) else None


def _literal(value: exp.Literal) -> str | None:
    if value.is_string:
        return "string"
    if not value.name.isdigit():
        return "decimal" if value.name.replace(".", "").isdigit() else None
    return "int" if int(value.name) < 2**31 else "bigint"


def _call(value: exp.Anonymous, kinds: Mapping[str, str | None]) -> str | None:
    name = value.name.lower()
    if name in _FIXED:
        return _FIXED[name]
    if name in _LIKE_ARGUMENTS:
        return _wider(value.expressions, kinds)
    if name == "if" and len(value.expressions) == 3:
        return _wider(value.expressions[1:], kinds)
    if name in ("min", "max", "first_value", "last_value", "nth_value", "lag", "lead") and value.expressions:
        return kind_of(value.expressions[0], kinds)
    if name in ("sum", "try_sum") and len(value.expressions) == 1:
        kind = kind_of(_plain_arguments(value.expressions[0])[0], kinds)
        return "bigint" if kind in _WHOLE else "decimal" if exact(kind) else None
    return None


def _wider(values: Sequence[exp.Expr], kinds: Mapping[str, str | None]) -> str | None:
    """What holds the values of all; NULL has no type of its own."""
    known = [kind_of(value, kinds) or "" for value in values if not isinstance(value, exp.Null)]
    if not known or "" in known:
        return None
    if all(kind in _WHOLE for kind in known):
        return max(known, key=_WHOLE.index)
    if all(map(exact, known)):
        return "decimal"
    return known[0] if all(kind == known[0] for kind in known) else None
