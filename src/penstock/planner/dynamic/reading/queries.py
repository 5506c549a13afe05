"""What plan is a query?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlglot import exp

from penstock.planner.dynamic.plans.algebra import (
    Distinct,
    Explode,
    Node,
    OneRow,
    Output,
    Project,
    Scan,
    SetOperation,
    Union,
    column,
    conjuncts,
    wrapped,
)
from penstock.planner.dynamic.plans.functions import GENERATORS, MOMENTS
from penstock.planner.dynamic.plans.kinds import Facts, comparable, plain
from penstock.planner.dynamic.plans.names import Names
from penstock.planner.dynamic.plans.placing import placed, timed
from penstock.planner.dynamic.reading.grouping import Grouping, has_aggregate, in_aggregate, sets, with_windows
from penstock.planner.dynamic.reading.relations import from_clause
from penstock.planner.dynamic.reading.scope import Scope, Title, only, renamed, titled
from penstock.planner.dynamic.reading.subqueries import Subqueries
from penstock.planner.dynamic.refusals import Refused

_MOST_RELATIONS = 200
_SELECT = frozenset(
    {
        "expressions", "from_", "joins", "laterals", "where", "group", "having", "qualify", "distinct", "windows",
        "order", "sort", "cluster", "distribute", "hint", "with_",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Named:
    """A query that WITH gives a name, and the names that it knows itself."""

    query: exp.Query
    columns: tuple[str, ...]
    known: Mapping[str, Named]


@dataclass(frozen=True, slots=True)
class Read:
    """A plan and the columns that it shows."""

    plan: Node
    titles: tuple[Title, ...]


@dataclass(slots=True)
class Reader:
    inputs: Mapping[str, Mapping[str, str]]
    names: Names = field(default_factory=Names)
    facts: Facts = field(default_factory=Facts)
    subqueries: Subqueries = field(init=False)
    _relations: int = 0

    def __post_init__(self) -> None:
        self.subqueries = Subqueries(self)

    def query(self, node: exp.Expr, known: Mapping[str, Named], outer: Scope | None) -> Read:
        match node:
            case exp.Subquery():
                only(node, "this", "alias", "with_", "order")
                return self.query(node.this, self._with(node, known), outer)
            case exp.Select():
                return self._select(node, self._with(node, known), outer)
            case exp.Union() | exp.Except() | exp.Intersect():
                only(node, "this", "expression", "distinct", "with_", "order")
                return self._combined(node, self._with(node, known), outer)
        raise Refused("SYNTAX_UNKNOWN", f"there is no rule for {node.key.upper()}")

    def _with(self, node: exp.Query, known: Mapping[str, Named]) -> Mapping[str, Named]:
        clause = node.args.get("with_")
        if clause is None:
            return known
        names = dict(known)
        for table in clause.expressions:
            columns = tuple(name.name for name in table.args["alias"].columns)
            names[table.alias.lower()] = Named(table.this, columns, dict(names))
        return names

    def relation(self, node: exp.Table, known: Mapping[str, Named]) -> Read:
        """The rows of an input, or of a query with a name."""
        self._relations += 1
        if self._relations > _MOST_RELATIONS:
            raise Refused("TOO_LARGE", f"it reads more than {_MOST_RELATIONS} relations")
        only(node, "this", "alias", "hints")
        if not isinstance(node.this, exp.Identifier):
            raise Refused("SYNTAX_UNKNOWN", f"there is no rule for {node.sql()} as a relation")
        named = known.get(node.name.lower())
        if named is not None:
            read = self.query(named.query, named.known, None)
            return Read(read.plan, renamed(read.titles, named.columns))
        source = next((name for name in self.inputs if name.lower() == node.name.lower()), None)
        if source is None:
            raise Refused("NOT_RESOLVED", f"no relation is called {node.name}")
        return self._scan(source)

    def _scan(self, source: str) -> Read:
        names, titles = [], []
        for own, kind in self.inputs[source].items():
            name = self.names.fresh(own.lower())
            self.facts.kinds[name] = plain(kind)
            names.append(name)
            titles.append(titled(name, own))
        return Read(Scan(source, source, tuple(names), tuple(self.inputs[source])), tuple(titles))

    def _combined(self, node: exp.SetOperation, known: Mapping[str, Named], outer: Scope | None) -> Read:
        left, right = self.query(node.this, known, outer), self.query(node.expression, known, outer)
        if len(left.titles) != len(right.titles):
            raise Refused("NOT_RESOLVED", "the two sides of a set operation have different numbers of columns")
        sides = [self.shown(side) for side in (left, right)]
        names = tuple(self.names.fresh(title.key or "c") for title in left.titles)
        alike = True
        for name, *own in zip(names, sides[0].columns, sides[1].columns, strict=True):
            kinds = [self.facts.kinds.get(side) for side in own]
            alike = alike and comparable(*kinds)
            self.facts.kinds[name] = kinds[0] if kinds[0] == kinds[1] else None
            if any(side in self.facts.inexact for side in own):
                self.facts.inexact.add(name)
        plan: Node
        every = node.args.get("distinct") is False
        if isinstance(node, exp.Union):
            plan = Union((sides[0], sides[1]), names, alike)
            plan = plan if every else Distinct(plan)
        else:
            kind: Literal["except", "intersect"] = "except" if isinstance(node, exp.Except) else "intersect"
            plan = SetOperation(sides[0], sides[1], kind, every, names, alike)
        titles = (titled(name, title.title) for name, title in zip(names, left.titles, strict=True))
        return Read(plan, tuple(titles))

    def shown(self, read: Read) -> Node:
        """The plan with exactly the columns that it shows."""
        return self.project(read.plan, [(title.title, title.value) for title in read.titles])

    def project(self, plan: Node, values: Sequence[tuple[str, exp.Expr]]) -> Project:
        outputs = tuple(Output(self.names.fresh(title.lower() or "c"), value) for title, value in values)
        for output in outputs:
            self.facts.record(output)
        return Project(plan, outputs)

    def output(self, like: str, value: exp.Expr) -> Output:
        made = Output(self.names.fresh(like), value)
        self.facts.record(made)
        return made

    def _select(self, node: exp.Select, known: Mapping[str, Named], outer: Scope | None) -> Read:
        only(node, *_SELECT)
        scope = Scope(outer=outer)
        plan = from_clause(self, node, known, scope) if node.args.get("from_") else OneRow()
        _spell_out_windows(node)
        if node.args.get("where"):
            for part in conjuncts(node.args["where"].this):
                plan = self.subqueries.where(plan, part, scope, known)
        plan, items = self._items(plan, node, known, scope)
        aliases = {item.key: item.value for item in items}
        having = self._conditions(node, "having", scope, known, aliases)
        qualify = self._conditions(node, "qualify", scope, known, aliases)
        values = [item.value for item in items]
        if node.args.get("group") or has_aggregate(*values, *having, *qualify):
            keys = self._keys(node, scope, known, items)
            grouping = Grouping(self, plan, keys)
            values = [grouping.over_groups(value) for value in values]
            having = [grouping.over_groups(value) for value in having]
            qualify = [grouping.over_groups(value) for value in qualify]
            plan = grouping.plan(sets(node, keys))
        elif having:
            raise Refused("NOT_RESOLVED", "it has HAVING without an aggregate")
        plan, both = self.subqueries.attached(plan, [*values, *having, *qualify])
        values, rest = both[: len(values)], both[len(values) :]
        for condition in rest[: len(having)]:
            plan = placed(plan, condition)
        plan, values = with_windows(self, plan, [*values, *rest[len(having) :]])
        for condition in values[len(items) :]:
            plan = placed(plan, condition)
        shown = self.project(plan, [(item.title, value) for item, value in zip(items, values, strict=False)])
        titles = tuple(titled(name, item.title) for name, item in zip(shown.columns, items, strict=True))
        distinct = node.args.get("distinct")
        if distinct is not None:
            only(distinct)
            return Read(Distinct(shown), titles)
        return Read(shown, titles)

    def _items(
        self, plan: Node, node: exp.Select, known: Mapping[str, Named], scope: Scope
    ) -> tuple[Node, list[Title]]:
        items: list[Title] = []
        for item in node.expressions:
            star = item.this if isinstance(item, exp.Column) else item
            if isinstance(star, exp.Star):
                items += _starred(scope, star, item.table if isinstance(item, exp.Column) else None)
                continue
            value = item.unalias()
            if isinstance(item, exp.Aliases):
                value = item.this
            if isinstance(value, exp.Anonymous) and value.name.lower() in GENERATORS:
                plan, made = self._generated(plan, item, value, known, scope)
                items += made
                continue
            aliases = {known_item.key: known_item.value for known_item in items}
            items.append(Title(item.output_name, self.resolved(value, scope, known, aliases)))
        return plan, items

    def _generated(
        self, plan: Node, item: exp.Expr, call: exp.Anonymous, known: Mapping[str, Named], scope: Scope
    ) -> tuple[Node, list[Title]]:
        if isinstance(item, exp.Aliases):
            titles = [alias.name for alias in item.expressions]
        elif isinstance(item, exp.Alias):
            titles = [item.alias]
        else:
            raise Refused("SYNTAX_UNKNOWN", f"the columns of {call.name}() need names (write AS)")
        return self.exploded(plan, self.resolved(call, scope, known), False, titles)

    def exploded(self, plan: Node, generator: exp.Expr, outer: bool, titles: Sequence[str]) -> tuple[Node, list[Title]]:
        plan, (call,) = self.subqueries.attached(plan, [generator])
        if timed(call):  # what asks for the time is computed row by row first
            moments = tuple(self.output("moment", part) for part in call.expressions)
            plan = Project(plan, (*(Output(name, column(name)) for name in plan.columns), *moments))
            call = exp.Anonymous(this=call.this, expressions=[column(output.name) for output in moments])
        made = tuple(self.names.fresh(title.lower() or "c") for title in titles)
        return Explode(plan, call, outer, made), [titled(*pair) for pair in zip(made, titles, strict=True)]

    def _conditions(
        self, node: exp.Select, clause: str, scope: Scope, known: Mapping[str, Named], aliases: Mapping[str, exp.Expr]
    ) -> list[exp.Expr]:
        if not node.args.get(clause):
            return []
        return [
            self.resolved(part, scope, known, aliases, ambiguous=True) for part in conjuncts(node.args[clause].this)
        ]

    def _keys(
        self, node: exp.Select, scope: Scope, known: Mapping[str, Named], items: Sequence[Title]
    ) -> list[exp.Expr]:
        """What it groups by; ordinals, names of items and ALL are replaced by what they mean."""
        group = node.args.get("group")
        if group is None:
            return []
        only(group, "expressions", "all", "rollup", "cube", "grouping_sets")
        if group.args.get("all"):
            return [item.value for item in items if not has_aggregate(item.value)]
        aliases = {item.key: item.value for item in items}
        keys: list[exp.Expr] = []
        for element in _elements(group):
            plain_element = element.unnest()
            if isinstance(plain_element, exp.Literal) and not plain_element.is_string:
                keys.append(_ordinal(plain_element, items))
            else:
                keys.append(self.resolved(plain_element, scope, known, aliases))
        return keys

    def resolved(
        self,
        node: exp.Expr,
        scope: Scope,
        known: Mapping[str, Named],
        aliases: Mapping[str, exp.Expr] | None = None,
        *,
        ambiguous: bool = False,
    ) -> exp.Expr:
        """The expression over columns of the plan; `aliases` are asked last.

        `ambiguous`: dialects do not agree which of the two a name means if both have it.
        """

        def meaning(part: exp.Expr) -> exp.Expr:
            match part:
                case exp.Column():
                    value = scope.value(part)
                    alias = (aliases or {}).get(part.name.lower()) if len(part.parts) == 1 else None
                    clash = value is not None and alias is not None and value != alias
                    if ambiguous and clash and not in_aggregate(part):
                        raise Refused("NOT_RESOLVED", f"{part.name} is a column and the name of a result")
                    found = value if value is not None else alias
                    if found is None:
                        raise Refused("NOT_RESOLVED", f"no column is called {part.sql()}")
                    return wrapped(found.copy()) if part.parent is not None else found.copy()
                case exp.Exists() | exp.Subquery():
                    return self.subqueries.value(part, scope, known)
                case exp.In() if part.args.get("query"):
                    return self.subqueries.value(part, scope, known)
                case exp.CurrentTimestamp() | exp.CurrentDate() | exp.Localtimestamp():
                    names = {"CurrentTimestamp": "now", "CurrentDate": "current_date"}
                    return exp.Placeholder(this=MOMENTS[names.get(type(part).__name__, "localtimestamp")])
                case exp.Anonymous() if part.name.lower() in MOMENTS and not part.expressions:
                    return exp.Placeholder(this=MOMENTS[part.name.lower()])
            return part

        return _prepared(node).transform(meaning, copy=False)


def _elements(group: exp.Group) -> list[exp.Expr]:
    found: list[exp.Expr] = []
    for part in group.expressions:
        if isinstance(part, (exp.Rollup, exp.Cube, exp.GroupingSets)):
            for inner in part.expressions:
                found += inner.expressions if isinstance(inner, exp.Tuple) else [inner]
        else:
            found.append(part)
    return found


def _ordinal(number: exp.Literal, items: Sequence[Title]) -> exp.Expr:
    place = int(number.name) if number.name.isdigit() else 0
    if not 1 <= place <= len(items):
        raise Refused("NOT_RESOLVED", f"GROUP BY {number.name} names no column")
    if has_aggregate(items[place - 1].value):
        raise Refused("NOT_RESOLVED", f"GROUP BY {number.name} names an aggregate")
    return items[place - 1].value.copy()


def _starred(scope: Scope, star: exp.Star, alias: str | None) -> list[Title]:
    only(star, "except_")
    left_out = {name.name.lower() for name in star.args.get("except_") or []}
    return [title for title in scope.star(alias or None) if title.key not in left_out]


_WITH_UNIT = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"})


def _prepared(node: exp.Expr) -> exp.Expr:
    """A copy in which every column is one, and fields keep their names.

    A column in `struct(...)` names its field, and here columns get other names. The unit in `datediff(DAY, a, b)` looks
    like a column.
    """
    prepared = node.copy()
    for call in list(prepared.find_all(exp.Anonymous)):
        name, arguments = call.name.lower(), call.expressions
        if name == "struct":
            named = [
                exp.alias_(part, part.name, quoted=True) if isinstance(part, exp.Column) else part for part in arguments
            ]
            call.set("expressions", named)
        elif name in _WITH_UNIT and len(arguments) == 3 and isinstance(arguments[0], exp.Column):
            call.set("expressions", [exp.Var(this=arguments[0].name), *arguments[1:]])
    return prepared


def _spell_out_windows(node: exp.Select) -> None:
    """Put the definitions of named windows where they are used."""
    named = {window.name.lower(): window for window in node.args.get("windows") or []}
    for window in list(node.find_all(exp.Window)):
        alias = window.args.get("alias")
        if alias is None or window.find_ancestor(exp.Select) is not node:
            continue
        definition = named.get(alias.name.lower())
        if definition is None or definition.args.get("alias"):
            raise Refused("NOT_RESOLVED", f"no window is called {alias.name}")
        for name in ("partition_by", "order", "spec"):
            if definition.args.get(name) and window.args.get(name):
                raise Refused("SYNTAX_UNKNOWN", f"a window adds to the window {alias.name}")
            if definition.args.get(name):
                value = definition.args[name]
                window.set(name, [one.copy() for one in value] if isinstance(value, list) else value.copy())
        window.set("alias", None)
