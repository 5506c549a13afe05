"""How is one query made to give the rows of many chunks, each for itself?

The rows of every positioned input carry the start of the chunk that reads them. Where rows meet, that tag goes along:
it is one more column to group by, to join on, to partition windows by and to tell distinct rows apart. What is not
known here is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.parsers.spark import SparkParser

from penstock.project.queries.shareable_functions import AGGREGATES, GENERATORS, ROW_WISE, WINDOWED
from penstock.project.reading.depth import deep
from penstock.project.templates.rendering import PLACEHOLDER_BOUNDS
from penstock.values.intervals import Interval
from penstock.values.tasks import TAG

_NEAR = 10**15
_INT = 2**31
_CLAUSES = frozenset(
    {"expressions", "from_", "joins", "laterals", "where", "group", "having", "distinct", "order", "hint", "with_"}
)
_PLAIN: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Star, exp.Alias, exp.Paren, exp.Cast,
    exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Case, exp.If, exp.And, exp.Or, exp.Not, exp.EQ,
    exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Div,
    exp.IntDiv, exp.Mod, exp.Neg, exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot, exp.DPipe, exp.Like,
    exp.RegexpLike, exp.Escape, exp.Between, exp.In, exp.Is, exp.Bracket, exp.Interval, exp.IntervalSpan, exp.Var,
    exp.Lambda, exp.Ordered, exp.Order, exp.Window, exp.WindowSpec, exp.Filter, exp.Distinct, exp.Tuple, exp.Exists,
    exp.Subquery, exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.With, exp.CTE, exp.TableAlias,
    exp.Table, exp.Union, exp.Except, exp.Intersect, exp.Lateral, exp.Hint, exp.IgnoreNulls,
)  # fmt: skip


class _Verbatim(Spark):
    """Spark's SQL with every function as it was written: nothing is translated."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
            name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }


class Unshareable(Exception):  # noqa: N818  # an answer, and no failure
    """Why chunks cannot share a query."""


@dataclass(frozen=True, slots=True)
class Share:
    """The chunks that share a query."""

    chunks: tuple[Interval, ...]
    end_of: Callable[[str], str]
    """SQL of the end of the chunk whose start is the given column."""


def shared(sql: str, carriers: frozenset[str], share: Share) -> str:
    """`sql`, rendered for `PLACEHOLDER_BOUNDS`, as one query over all chunks; its last column is `TAG`.

    `carriers` are the relations whose rows have that column.
    """
    try:
        with deep():
            return _shared(sql, carriers, share)
    except RecursionError:
        raise Unshareable("it is nested too deeply") from None


def _shared(sql: str, carriers: frozenset[str], share: Share) -> str:
    try:
        tree = parse_one(sql, dialect=_Verbatim)
    except SqlglotError:
        raise Unshareable("it has syntax that only Spark knows") from None
    _known(tree)
    if not _Rewriting(carriers, share).query(tree, {}):
        raise Unshareable("it reads no input by position")
    text = tree.sql(dialect=_Verbatim, comments=False)
    if any(_near(int(digits)) is not None for digits in re.findall(r"\d{19}", text)):
        raise Unshareable("it uses the bounds of its chunk in a text or a name")
    return text


def _known(tree: exp.Expr) -> None:
    """Every node is one that is understood here."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            _known_function(node)
        elif isinstance(node, exp.Dot):
            if not isinstance(node.expression, exp.Identifier):
                raise Unshareable("it calls a function of a database")
        elif not isinstance(node, _PLAIN):
            raise Unshareable(f"it has {_word(node)}")


def _known_function(node: exp.Anonymous) -> None:
    name = node.name.lower()
    if isinstance(node.parent, exp.Hint):
        return
    above = node.parent.parent if isinstance(node.parent, (exp.Filter, exp.IgnoreNulls)) else node.parent
    if name in WINDOWED and isinstance(above, exp.Window):
        return
    if name in AGGREGATES:
        return
    if name == "unix_timestamp" and node.expressions:  # without an argument it asks for the time
        return
    if name not in ROW_WISE:
        raise Unshareable(f"{name}() is not known to be the same for several chunks")


def _word(node: exp.Expr) -> str:
    return {"CurrentDate": "the time of the query", "CurrentTimestamp": "the time of the query"}.get(
        type(node).__name__, f"{type(node).__name__.upper()}, which is not known to be the same for several chunks"
    )


@dataclass(slots=True)
class _Source:
    """One relation of a FROM clause."""

    alias: exp.Identifier
    tagged: bool
    visible: bool = True

    @property
    def tag(self) -> exp.Expr:
        return exp.column(TAG, table=self.alias.copy())


@dataclass(slots=True)
class _Rewriting:
    carriers: frozenset[str]
    share: Share
    _named: int = 0

    def query(self, node: exp.Expr, known: Mapping[str, bool], *, columns: bool = True) -> bool:
        """Make the query carry tags; False: it gives the same rows for every chunk, and was left alone.

        `columns`: somebody may ask for its columns by name.
        """
        match node:
            case exp.Select():
                if columns:
                    _named_columns(node)
                return self._select(node, known)
            case exp.Subquery():
                _only(node, "this", "alias")
                return self.query(node.this, known, columns=columns)
            case exp.Union() | exp.Except() | exp.Intersect():
                _only(node, "this", "expression", "distinct", "with_", "order")
                known = self._with(node, known)
                left = self.query(node.this, known, columns=columns)
                right = self.query(node.expression, known, columns=False)  # the left side names them
                if left != right:
                    raise Unshareable(f"one side of its {node.key.upper()} reads no input by position")
                return left
        raise Unshareable(f"it reads {_word(node)}")

    def _with(self, node: exp.Query, known: Mapping[str, bool]) -> Mapping[str, bool]:
        clause = node.args.get("with_")
        if clause is None:
            return known
        if clause.args.get("recursive"):
            raise Unshareable("it is recursive")
        tagged_names = dict(known)
        for table in clause.expressions:
            tagged_names[table.alias.lower()] = tagged = self.query(table.this, tagged_names)
            _with_tag(table.args["alias"], tagged)
        return tagged_names

    def _select(self, node: exp.Select, known: Mapping[str, bool]) -> bool:
        unknown = sorted(name for name, value in node.args.items() if value and name not in _CLAUSES)
        if unknown:
            raise Unshareable(f"it has {unknown[0].strip('_').upper()}")
        known = self._with(node, known)
        for inner in _inner_queries(node):
            if self.query(inner, known, columns=False):
                raise Unshareable("a sub-query in an expression reads an input by position")
        sources, tag = self._from(node, known)
        own = list(_own(node))
        if tag is None:
            if any(_edge(expression) for expression in own):
                raise Unshareable("it uses bounds where it reads no input by position")
            return False
        self._group(node, own, tag)
        for window in own:
            if isinstance(window, exp.Window):
                _partition(window, tag)
        _stars(node, sources)
        self._bounds(own, tag)
        node.append("expressions", exp.alias_(tag.copy(), TAG))
        return True

    def _from(self, node: exp.Select, known: Mapping[str, bool]) -> tuple[list[_Source], exp.Expr | None]:
        """The relations, and the tag of a row that was joined of them."""
        origin = node.args.get("from_")
        if origin is None:
            return [], None
        first = self._relation(origin.this, known)
        sources, tag = [first], first.tag if first.tagged else None
        joins = node.args.get("joins") or []
        kinds = {join.kind for join in joins}
        if "CROSS" in kinds and any(join.side in ("RIGHT", "FULL") for join in joins):
            raise Unshareable("it has a comma or a CROSS JOIN beside a RIGHT or FULL one")
        twice = False
        for join in joins:
            source = self._relation(join.this, known)
            source.visible = join.kind not in ("SEMI", "ANTI")
            if tag is not None and source.tagged:
                if twice and join.args.get("using"):  # which of the tags it compares is not for us to say
                    raise Unshareable("it has a join with USING after one with ON (write both with ON)")
                twice = twice or (source.visible and not join.args.get("using"))
            tag = self._joined(join, tag, source)
            sources.append(source)
        for lateral in node.args.get("laterals") or []:
            _generated(lateral)
        return sources, tag

    def _joined(self, join: exp.Join, left: exp.Expr | None, source: _Source) -> exp.Expr | None:
        _only(join, "this", "side", "kind", "on", "using")
        side, kind = join.side, join.kind
        right = source.tag if source.tagged else None
        if left is None and right is None:
            return None
        outer_only = kind in ("SEMI", "ANTI") or side in ("LEFT", "FULL")
        if left is None and outer_only:
            raise Unshareable("it keeps rows of a lookup, whatever its chunk has")
        if right is None and side in ("RIGHT", "FULL"):
            raise Unshareable("it keeps rows of a lookup, whatever its chunk has")
        if left is not None and right is not None:
            _equated(join, left, right)
        if left is None or side == "RIGHT":
            return right
        if side == "FULL" and right is not None:
            return exp.Anonymous(this="coalesce", expressions=[left.copy(), right.copy()])
        return left

    def _relation(self, node: exp.Expr, known: Mapping[str, bool]) -> _Source:
        _only(node, "this", "alias")
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
            name = node.name
            tagged = known.get(name.lower(), name in self.carriers)
        elif isinstance(node, exp.Subquery):
            tagged = self.query(node.this, known)
        else:
            raise Unshareable("it reads rows that are made in the query")
        alias = node.args.get("alias")
        if alias is None or alias.this is None:
            self._named += 1
            name = node.name if isinstance(node, exp.Table) else f"__penstock_part_{self._named}"
            alias = exp.TableAlias(this=exp.to_identifier(name), columns=alias.columns if alias else None)
            node.set("alias", alias)
        _with_tag(alias, tagged)
        return _Source(alias.this, tagged)

    def _group(self, node: exp.Select, own: Sequence[exp.Expr], tag: exp.Expr) -> None:
        group = node.args.get("group")
        if group is None:
            if node.args.get("having") or any(_aggregates(expression) for expression in own):
                raise Unshareable("it aggregates without GROUP BY, which gives a row where there is none")
            return
        _only(group, "expressions", "all")
        if any(_edge(key.unnest()) for key in group.expressions):
            raise Unshareable("it groups by a number")
        if not group.args.get("all"):
            group.append("expressions", tag.copy())

    def _bounds(self, own: Sequence[exp.Expr], tag: exp.Expr) -> None:
        """Put the chunk's own edges in place of those of the stand-in."""
        for node in own:
            edge = _edge(node)
            if edge is None:
                continue
            if not isinstance(node.parent, (*_PLAIN, exp.Anonymous)) or isinstance(
                node.parent, (exp.WindowSpec, exp.Ordered, exp.Interval, exp.DataTypeParam)
            ):
                raise Unshareable("it uses bounds in a place that is not a value")
            node.replace(self._value(*edge, tag))

    def _value(self, of_end: bool, offset: int, tag: exp.Expr) -> exp.Expr:
        edge = tag.sql(dialect=_Verbatim)
        text = f"{self.share.end_of(edge) if of_end else edge} + {offset}L"
        values = [(chunk.end if of_end else chunk.start) + offset for chunk in self.share.chunks]
        # a number in the text is an INT where it fits
        kind = "INT" if all(-_INT < value < _INT for value in values) else "BIGINT"
        return parse_one(f"CAST({text} AS {kind})", dialect=_Verbatim)


def _only(node: exp.Expr, *names: str) -> None:
    odd = sorted(name for name, value in node.args.items() if value and name not in names)
    if odd:
        raise Unshareable(f"it has {odd[0].strip('_').upper()} in {node.key.upper()}")


def _with_tag(alias: exp.TableAlias | None, tagged: bool) -> None:
    """An alias that names the columns names the tag, too."""
    if tagged and alias is not None and alias.columns:
        alias.append("columns", exp.to_identifier(TAG))


def _own(node: exp.Select) -> Iterator[exp.Expr]:
    """The expressions of one SELECT, without those of the queries in it."""
    clauses = [node.args.get(name) for name in ("where", "group", "having", "order")]
    tops = [
        *node.expressions,
        *(clause for clause in clauses if clause is not None),
        *(node.args.get("laterals") or []),
    ]
    for join in node.args.get("joins") or []:
        tops += [join.args["on"]] if join.args.get("on") is not None else []
    for top in tops:
        yield from top.walk(prune=lambda below: isinstance(below, exp.Query))


def _inner_queries(node: exp.Select) -> list[exp.Expr]:
    return [inner for inner in _own(node) if isinstance(inner, exp.Query)]


def _edge(node: exp.Expr) -> tuple[bool, int] | None:
    """Which edge of the stand-in a number is, and what was added to it."""
    if not isinstance(node, exp.Literal) or node.is_string or not node.name.isdigit():
        return None
    return _near(int(node.name))


def _near(number: int) -> tuple[bool, int] | None:
    for of_end, edge in ((False, PLACEHOLDER_BOUNDS.start), (True, PLACEHOLDER_BOUNDS.end)):
        if abs(number - edge) < _NEAR:
            return of_end, number - edge
    return None


def _named_columns(node: exp.Select) -> None:
    for column in node.expressions:
        plain = isinstance(column, (exp.Alias, exp.Column, exp.Star))
        if not plain or (isinstance(column, exp.Column) and len(column.parts) > 2):
            raise Unshareable(f"the column {column.sql(dialect=_Verbatim)} has no name (give it one with AS)")


def _generated(lateral: exp.Lateral) -> None:
    _only(lateral, "this", "view", "outer", "alias")
    function = lateral.this
    known = isinstance(function, exp.Anonymous) and function.name.lower() in GENERATORS
    if not lateral.args.get("view") or not known:
        raise Unshareable("it has LATERAL that is no LATERAL VIEW of a known function")


def _equated(join: exp.Join, left: exp.Expr, right: exp.Expr) -> None:
    if join.args.get("using"):
        join.append("using", exp.to_identifier(TAG))
        return
    same = exp.EQ(this=left.copy(), expression=right.copy())
    condition = join.args.get("on")
    join.set("on", same if condition is None else exp.And(this=same, expression=exp.Paren(this=condition.copy())))
    if join.kind == "CROSS":
        join.set("kind", None)


def _aggregates(node: exp.Expr) -> bool:
    """Whether it is a call of an aggregate, and not over a window."""
    if not (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES):
        return False
    above = node.parent
    while isinstance(above, (exp.Filter, exp.IgnoreNulls)):
        above = above.parent
    return not isinstance(above, exp.Window)


def _partition(window: exp.Window, tag: exp.Expr) -> None:
    if window.args.get("alias"):
        raise Unshareable("it names a window")
    window.set("partition_by", [tag.copy(), *(window.args.get("partition_by") or [])])


def _stars(node: exp.Select, sources: Sequence[_Source]) -> None:
    """Stars show what the author's query has, and not the tags."""
    inner = [star for star in _own(node) if isinstance(star, exp.Star) and not _stands_alone(star)]
    if any(not _counted(star) for star in inner):
        raise Unshareable("it has a star in an expression")
    tagged = {source.alias.name.lower() for source in sources if source.tagged}
    shown = [source for source in sources if source.visible]
    columns: list[exp.Expr] = []
    for column in node.expressions:
        star = column.this if isinstance(column, exp.Column) else column
        if not isinstance(star, exp.Star):
            columns.append(column)
            continue
        _only(star, "except_")
        if isinstance(column, exp.Column):
            columns.append(_without_tag(column, star) if column.table.lower() in tagged else column)
        elif len(shown) == 1 or len([source for source in shown if source.tagged]) <= 1:
            columns.append(_without_tag(column, star) if any(source.tagged for source in shown) else column)
        else:
            if (
                star.args.get("except_")
                or node.args.get("laterals")
                or any(join.args.get("using") for join in node.args["joins"])
            ):
                raise Unshareable("it has a star over several inputs")
            columns += [_all_of(source) for source in shown]
    node.set("expressions", columns)


def _stands_alone(star: exp.Star) -> bool:
    above = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
    return isinstance(above, exp.Select)


def _counted(star: exp.Star) -> bool:
    above = star.parent
    return isinstance(above, exp.Anonymous) and above.name.lower() == "count"


def _without_tag(column: exp.Expr, star: exp.Star) -> exp.Expr:
    star.append("except_", exp.to_identifier(TAG))
    return column


def _all_of(source: _Source) -> exp.Expr:
    star = exp.Star(except_=[exp.to_identifier(TAG)] if source.tagged else None)
    return exp.Column(this=star, table=source.alias.copy())
