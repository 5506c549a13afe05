"""What is the SQL of a plan?

Nodes go into one SELECT as long as they fit; then the SELECT becomes a subquery of the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from sqlglot import exp

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
    all_of,
    expressions,
    is_column,
    names_in,
    substituted,
)
from penstock.planner.dynamic.plans.dialect import Verbatim

_NO_COLUMN = "one"


class _Stage(IntEnum):
    """How far a SELECT is filled."""

    ROWS = 1
    EXPLODED = 2
    GROUPED = 3
    WINDOWED = 4
    DISTINCT = 5


@dataclass(slots=True)
class _Block:
    """A SELECT that is being filled."""

    scope: dict[str, exp.Expr]
    source: exp.Expr | None = None
    joins: list[exp.Join] = field(default_factory=list)
    laterals: list[exp.Lateral] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)
    group: exp.Group | None = None
    having: list[exp.Expr] = field(default_factory=list)
    totals: tuple[exp.Expr, ...] | None = None
    """What an aggregate without GROUP BY computes."""
    stage: _Stage = _Stage.ROWS

    def value(self, expression: exp.Expr) -> exp.Expr:
        return substituted(expression, self.scope)

    def values(self, expressions: Iterable[exp.Expr]) -> list[exp.Expr]:
        return [self.value(expression) for expression in expressions]

    def plain(self, names: Iterable[str]) -> bool:
        """Whether these columns are columns of its relations."""
        return all(is_column(self.scope[name]) for name in names if name in self.scope)


def sql_of(node: Node, titles: Sequence[tuple[str, str]]) -> str:
    """The SELECT that gives these columns of the plan under these titles."""
    printer = _Printer()
    if isinstance(node, Distinct):
        select = printer.select(node.child, titles).distinct(copy=False)
    else:
        select = printer.select(node, titles)
    for name, query in printer.shared.items():
        select = select.with_(name, as_=query, copy=False)
    return select.sql(dialect=Verbatim, comments=False)


@dataclass(slots=True)
class _Printer:
    shared: dict[str, exp.Select] = field(default_factory=dict)
    relations: int = 0

    def select(self, node: Node, titles: Sequence[tuple[str, str]]) -> exp.Select:
        block = self.block(node, frozenset(name for name, _ in titles))
        if block.stage is _Stage.DISTINCT and {name for name, _ in titles} != set(block.scope):
            block = self.closed(block, tuple(block.scope))
        return self._finished(block, titles)

    def block(self, node: Node, needed: frozenset[str]) -> _Block:  # noqa: PLR0911, PLR0912  # one line per kind of node
        match node:
            case Scan():
                return self._scan(node)
            case OneRow():
                return _Block({})
            case Nothing():
                return _Block({name: exp.null() for name in node.columns}, where=[exp.false()])
            case Filter():
                return self._filter(node, needed)
            case Project():
                return self._project(node, needed)
            case Explode():
                return self._explode(node, needed)
            case Join():
                return self._join(node, needed)
            case Union():
                return self._union(node, needed)
            case Distinct():
                return self._distinct(node)
            case SetOperation():
                return self._set_operation(node)
            case Aggregate():
                return self._aggregate(node, needed)
            case Window():
                return self._window(node, needed)
            case Shared():
                return self._shared(node)

    def closed(self, block: _Block, names: Iterable[str]) -> _Block:
        """The block as a subquery of a new one."""
        wanted = [name for name in block.scope if name in set(names)]
        if block.stage is _Stage.DISTINCT:
            wanted = list(block.scope)
        return self._relation(self._finished(block, [(name, name) for name in wanted]).subquery(copy=False), wanted)

    def _finished(self, block: _Block, titles: Sequence[tuple[str, str]]) -> exp.Select:
        values = [(title, block.scope[name].copy()) for name, title in titles]
        if not values:
            values = [(_NO_COLUMN, exp.Literal.number(1))]
        if block.totals is not None and not any(_has(value, block.totals) for _, value in values):
            count = exp.Anonymous(this="count", expressions=[exp.Star()])
            block.having.append(exp.GTE(this=count, expression=exp.Literal.number(0)))
        select = exp.Select(expressions=[exp.alias_(value, title, quoted=True) for title, value in values])
        if block.source is not None:
            select.set("from_", exp.From(this=block.source))
        for name, clauses in (("joins", block.joins), ("laterals", block.laterals)):
            if clauses:
                select.set(name, clauses)
        if block.where:
            select.set("where", exp.Where(this=all_of(block.where)))
        if block.group is not None:
            select.set("group", block.group)
        if block.having:
            select.set("having", exp.Having(this=all_of(block.having)))
        if block.stage is _Stage.DISTINCT:
            select.set("distinct", exp.Distinct())
        return select

    def _alias(self) -> exp.Identifier:
        self.relations += 1
        return exp.to_identifier(f"t{self.relations}")

    def _relation(self, source: exp.Expr, names: Sequence[str], own: Sequence[str] | None = None) -> _Block:
        alias = self._alias()
        source.set("alias", exp.TableAlias(this=alias))
        scope: dict[str, exp.Expr] = {
            name: _cell(alias, title) for name, title in zip(names, own or names, strict=True)
        }
        return _Block(scope, source)

    def _scan(self, node: Scan) -> _Block:
        table = exp.Table(this=exp.to_identifier(node.relation))
        return self._relation(table, node.names, node.source_columns)

    def _shared(self, node: Shared) -> _Block:
        if node.name not in self.shared:
            child, distinct = (node.child.child, True) if isinstance(node.child, Distinct) else (node.child, False)
            query = self.select(child, [(name, name) for name in child.columns])
            self.shared[node.name] = query.distinct(copy=False) if distinct else query
        own = node.child.columns
        return self._relation(exp.Table(this=exp.to_identifier(node.name)), node.names, own)

    def _filter(self, node: Filter, needed: frozenset[str]) -> _Block:
        needed |= names_in(node.condition)
        block = self.block(node.child, needed)
        if block.stage > _Stage.GROUPED:
            block = self.closed(block, needed)
        clause = block.having if block.stage is _Stage.GROUPED else block.where
        clause.append(block.value(node.condition))
        return block

    def _project(self, node: Project, needed: frozenset[str]) -> _Block:
        outputs = [output for output in node.outputs if output.name in needed]
        below = names_in(*(output.value for output in outputs))
        block = self.block(node.child, below)
        values = [output.value for output in outputs]
        renamed = block.stage is not _Stage.DISTINCT or (
            all(map(is_column, values)) and {value.name for value in values} == set(block.scope)
        )
        if not renamed or _repeats(values, block.scope):
            block = self.closed(block, below)
        block.scope = {output.name: block.value(output.value) for output in outputs}
        return block

    def _explode(self, node: Explode, needed: frozenset[str]) -> _Block:
        below = (needed | names_in(node.generator)) - set(node.made)
        block = self.block(node.child, below)
        if block.stage > _Stage.EXPLODED or block.source is None:
            block = self.closed(block, below)
        alias = self._alias()
        names = exp.TableAlias(this=alias, columns=[exp.to_identifier(name, quoted=True) for name in node.made])
        lateral = exp.Lateral(this=block.value(node.generator), view=True, outer=node.outer, alias=names)
        block.laterals.append(lateral)
        block.scope.update({name: _cell(alias, name) for name in node.made})
        block.stage = _Stage.EXPLODED
        return block

    def _join(self, node: Join, needed: frozenset[str]) -> _Block:
        needed |= names_in(*node.condition)
        lefts, rights = needed & set(node.left.columns), needed & set(node.right.columns)
        left, right = self.block(node.left, lefts), self.block(node.right, rights)
        whole = node.kind == "full"
        if left.stage > _Stage.ROWS or left.source is None or (whole and (left.where or not left.plain(lefts))):
            left = self.closed(left, lefts)
        bare = right.stage is _Stage.ROWS and right.source is not None and not right.joins
        # a value that a missing partner has to turn into NULL cannot be computed after the join
        kept = not (whole and right.where) and (node.kind not in ("left", "full") or right.plain(rights))
        if not (bare and kept):
            right = self.closed(right, rights)
        scope = {**left.scope, **right.scope}
        conditions = [substituted(condition, scope) for condition in node.condition] + right.where
        left.joins.append(_join(node, right.source, conditions))
        left.scope = left.scope if node.kind in ("semi", "anti") else scope
        return left

    def _union(self, node: Union, needed: frozenset[str]) -> _Block:
        places = [place for place, name in enumerate(node.names) if name in needed]
        names = [node.names[place] for place in places]
        parts = [
            self.select(part, [(part.columns[place], node.names[place]) for place in places]) for part in node.parts
        ]
        whole: exp.Query = parts[0]
        for part in parts[1:]:
            whole = exp.Union(this=whole, expression=part, distinct=False)
        return self._relation(exp.Subquery(this=whole), names)

    def _set_operation(self, node: SetOperation) -> _Block:
        left, right = (
            self.select(side, [(own, name) for own, name in zip(side.columns, node.names, strict=True)])
            for side in (node.left, node.right)
        )
        kind = exp.Except if node.kind == "except" else exp.Intersect
        whole = kind(this=left, expression=right, distinct=not node.every)
        return self._relation(exp.Subquery(this=whole), node.names)

    def _distinct(self, node: Distinct) -> _Block:
        block = self.block(node.child, frozenset(node.columns))
        if block.stage is _Stage.DISTINCT:
            return block
        block.scope = {name: block.scope[name] for name in node.columns}
        block.stage = _Stage.DISTINCT
        return block

    def _aggregate(self, node: Aggregate, needed: frozenset[str]) -> _Block:
        keys = node.keys
        values = [value for value in node.values if value.name in needed]
        below = names_in(*(output.value for output in (*keys, *values)))
        block = self.block(node.child, below)
        if block.stage > _Stage.EXPLODED or not all(names_in(block.value(key.value)) for key in keys):
            block = self.closed(block, below)
        cells = [block.value(key.value) for key in keys]
        if keys:
            block.group = _group(cells, node.sets)
        else:
            block.totals = tuple(block.values(value.value for value in values))
        block.scope = {output.name: block.value(output.value) for output in (*keys, *values)}
        block.stage = _Stage.GROUPED
        return block

    def _window(self, node: Window, needed: frozenset[str]) -> _Block:
        values = [value for value in node.values if value.name in needed]
        below = (needed - {value.name for value in node.values}) | names_in(*(value.value for value in values))
        block = self.block(node.child, below)
        inner = block.stage is _Stage.WINDOWED and any(
            value.find(exp.Window) for name, value in block.scope.items() if name in names_in(*expressions(node))
        )
        if block.stage in (_Stage.GROUPED, _Stage.DISTINCT) or inner:
            block = self.closed(block, below)
        block.scope |= {value.name: block.value(value.value) for value in values}
        block.stage = _Stage.WINDOWED
        return block


def _cell(alias: exp.Identifier, title: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(title, quoted=True), table=alias.copy())


def _join(node: Join, source: exp.Expr | None, conditions: list[exp.Expr]) -> exp.Join:
    match node.kind:
        case "inner":
            if not conditions:
                return exp.Join(this=source, kind="CROSS")
            return exp.Join(this=source, on=all_of(conditions))
        case "left" | "full":
            return exp.Join(this=source, side=node.kind.upper(), on=all_of(conditions))
        case "semi" | "anti":
            return exp.Join(this=source, side="LEFT", kind=node.kind.upper(), on=all_of(conditions))


def _group(cells: list[exp.Expr], sets: tuple[tuple[int, ...], ...] | None) -> exp.Group:
    if sets is None:
        return exp.Group(expressions=[cell.copy() for cell in cells])
    listed = [exp.Tuple(expressions=[cells[place].copy() for place in places]) for places in sets]
    return exp.Group(expressions=[exp.GroupingSets(expressions=listed)])


def _repeats(values: Iterable[exp.Expr], scope: Mapping[str, exp.Expr]) -> bool:
    """Whether a value that is computed would be written more than once."""
    seen: set[str] = set()
    for value in values:
        for found in value.find_all(exp.Column):
            inner = scope.get(found.name)
            if inner is not None and not isinstance(inner, exp.Column | exp.Literal):
                if found.name in seen:
                    return True
                seen.add(found.name)
    return False


def _has(value: exp.Expr, totals: tuple[exp.Expr, ...]) -> bool:
    return any(node in totals for node in value.walk())
