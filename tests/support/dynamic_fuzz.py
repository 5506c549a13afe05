"""Random queries over tiny tables full of NULLs, random changes, and DuckDB as the judge of refresh programs."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from penstock.planner.dynamic.program import FullOnly, Incremental, understand

Row = tuple[Any, ...]
State = Mapping[str, tuple[Row, ...]]

INPUTS: Mapping[str, Mapping[str, str]] = {
    "a": {"k": "int", "g": "int", "x": "int", "s": "string", "ts": "timestamp_ntz"},
    "b": {"k": "int", "h": "int", "y": "int", "s": "string"},
    "c": {"k": "int", "z": "int", "ts": "timestamp_ntz"},
}
START = datetime(2026, 3, 1, tzinfo=UTC)
_DUCKDB = {"int": "integer", "string": "varchar", "timestamp_ntz": "timestamp"}


def duckdb_sql(sql: str) -> str:
    return sqlglot.transpile(sql, read="spark", write="duckdb")[0]


# --- queries


@dataclass(frozen=True, slots=True)
class Query:
    sql: str
    columns: tuple[tuple[str, str], ...]
    """Names and types: int, string or timestamp_ntz."""


@dataclass(slots=True)
class Author:
    """Writes queries; every shape can stand inside of every other."""

    chance: Random
    aliases: int = 0

    def query(self, depth: int) -> Query:
        shapes: list[tuple[int, Callable[[int], Query]]] = [
            (3, self.selection), (4, self.join), (5, self.aggregate), (3, self.window), (2, self.distinct),
            (3, self.set_operation), (1, self.totals), (1, self.grouping_sets), (1, self.exploded),
        ]  # fmt: skip
        weights = [weight for weight, _ in shapes]
        return self.chance.choices([shape for _, shape in shapes], weights)[0](depth)

    def alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    def source(self, depth: int) -> tuple[str, Query]:
        """Something to stand in FROM, and its columns under its alias."""
        alias = self.alias()
        if depth <= 0 or self.chance.random() < 0.45:
            name = self.chance.choice("aaabbc")
            columns = tuple(INPUTS[name].items())
            return f"{name} {alias}", Query(name, tuple((f"{alias}.{own}", kind) for own, kind in columns))
        inner = self.query(depth - 1)
        return f"({inner.sql}) {alias}", Query("", tuple((f"{alias}.{own}", kind) for own, kind in inner.columns))

    def one_of(self, query: Query, kind: str) -> str | None:
        own = [name for name, its in query.columns if its == kind]
        return self.chance.choice(own) if own else None

    def some(self, query: Query, most: int) -> list[tuple[str, str]]:
        count = self.chance.randint(1, min(most, len(query.columns)))
        return self.chance.sample(list(query.columns), count)

    def number(self, query: Query) -> str:
        name = self.one_of(query, "int")
        moment = self.one_of(query, "timestamp_ntz")
        if moment is not None and self.chance.random() < 0.06:
            return f"case when {moment} > now() - interval {self.chance.randint(1, 4)} hour then 1 else 0 end"
        if name is None:
            return str(self.chance.randint(0, 2))
        return self.chance.choice([name, name, f"{name} + 1", f"coalesce({name}, 0)", f"{name} % 2"])

    def condition(self, query: Query, depth: int) -> str:
        pick = self.chance.random()
        name, kind = self.chance.choice(query.columns)
        moment = self.one_of(query, "timestamp_ntz")
        if moment is not None and self.chance.random() < 0.2:
            name, kind, pick = moment, "timestamp_ntz", 0.0
        if kind == "timestamp_ntz" and pick < 0.7:
            hours = self.chance.randint(1, 4)
            compared = self.chance.choice(
                [
                    f">= now() - interval {hours} hour",
                    f"< now() - interval {hours} hour",
                    f"> current_timestamp() - interval {hours} hours",
                ]
            )
            return f"{name} {compared}"
        if pick < 0.25 and depth >= 0:
            return self.subquery_condition(query, depth - 1)
        if pick < 0.35:
            return f"{name} is {self.chance.choice(['', 'not '])}null"
        if pick < 0.42:
            return f"({self.condition(query, -1)} or {self.alternative(query, depth)})"
        if kind == "string":
            return f"{name} {self.chance.choice(['=', '<>', '<=>'])} '{self.chance.choice('ab')}'"
        other = self.one_of(query, "int") if self.chance.random() < 0.3 else None
        compared = self.chance.choice(["=", "<", ">=", "<>", "<=>"])
        return f"{self.number(query)} {compared} {other or self.chance.randint(0, 2)}"

    def alternative(self, query: Query, depth: int) -> str:
        """A condition for OR, where EXISTS is a value."""
        mine = self.one_of(query, "int")
        if depth < 0 or mine is None or self.chance.random() < 0.5:
            return self.condition(query, -1)
        tied = self.chance.choice([f"k = {mine}", "k = 1"])
        return f"{self.chance.choice(['', 'not '])}exists (select 1 from b where b.{tied})"

    def subquery_condition(self, query: Query, depth: int) -> str:
        text, inner = self.source(depth)
        mine, own = self.one_of(query, "int"), self.one_of(inner, "int")
        if mine is None or own is None:
            return "1 = 1"
        where = f" where {self.condition(inner, -1)}" if self.chance.random() < 0.5 else ""
        negated = self.chance.choice(["", "not ", "not "])
        kind = self.chance.random()
        if kind < 0.35:
            tied = self.chance.choice([f"{own} = {mine}", f"{own} = {mine}", f"{own} < {mine}", f"{own} <=> {mine}"])
            return f"{negated}exists (select 1 from {text}{where or ' where 1 = 1'} and {tied})"
        if kind < 0.7:
            return f"{mine} {negated}in (select {own} from {text}{where})"
        compared = self.chance.choice(["<", ">", "=", ">="])
        call = self.chance.choice(["max", "min", "count", "sum"])
        if self.chance.random() < 0.5 and (extra := self.one_of(query, "int")):
            other = self.one_of(inner, "int")
            return (
                f"{mine} {compared} (select {call}({own}) from {text}{where or ' where 1 = 1'} and {other} = {extra})"
            )
        return f"{mine} {compared} (select {call}({own}) from {text}{where})"

    def where(self, query: Query, depth: int, odds: float = 0.5) -> str:
        conditions = []
        while self.chance.random() < odds and len(conditions) < 3:
            conditions.append(self.condition(query, depth))
        return f" where {' and '.join(conditions)}" if conditions else ""

    def listed(self, query: Query, most: int = 3) -> tuple[str, tuple[tuple[str, str], ...]]:
        """A SELECT list, and its columns."""
        parts, columns = [], []
        for number, (name, kind) in enumerate(self.some(query, most)):
            title = f"c{number}"
            value = self.number(query) if kind == "int" and self.chance.random() < 0.3 else name
            parts.append(f"{value} as {title}")
            columns.append((title, kind))
        return ", ".join(parts), tuple(columns)

    def selection(self, depth: int) -> Query:
        text, source = self.source(depth)
        listed, columns = self.listed(source, 4)
        if self.chance.random() < 0.15:
            inner_text, inner = self.source(depth - 1)
            own, mine, other = (self.one_of(inner, "int"), self.one_of(source, "int"), self.one_of(inner, "int"))
            if own and mine and other:
                call = self.chance.choice([f"max({own})", f"count({own})", f"coalesce(sum({own}), 7)", "count(*)"])
                tied = f" where {other} = {mine}" if self.chance.random() < 0.7 else ""
                listed += f", (select {call} from {inner_text}{tied}) as sub"
                columns = (*columns, ("sub", "int"))
        return Query(f"select {listed} from {text}{self.where(source, depth, 0.6)}", columns)

    def joined(self, depth: int) -> tuple[str, Query]:
        left_text, left = self.source(depth)
        right_text, right = self.source(depth)
        kinds = [
            "join",
            "join",
            "left join",
            "left join",
            "right join",
            "full join",
            "left semi join",
            "left anti join",
        ]
        kind = self.chance.choice([*kinds, "cross join"])
        both = Query("", left.columns if "semi" in kind or "anti" in kind else (*left.columns, *right.columns))
        if kind == "cross join":
            return f"{left_text} cross join {right_text}", both
        one, other = self.one_of(left, "int"), self.one_of(right, "int")
        same = self.chance.choice(["=", "=", "=", "=", "<=>", "<"])
        conditions = [f"{one} {same} {other}" if one and other else "1 = 1"]
        if self.chance.random() < 0.3:
            plain = Query("", tuple(pair for pair in (*left.columns, *right.columns) if pair[1] != "timestamp_ntz"))
            if plain.columns:
                conditions.append(self.condition(plain, -1))
        return f"{left_text} {kind} {right_text} on {' and '.join(conditions)}", both

    def join(self, depth: int) -> Query:
        text, source = self.joined(depth)
        listed, columns = self.listed(source, 4)
        return Query(f"select {listed} from {text}{self.where(source, 0, 0.3)}", columns)

    def from_anything(self, depth: int) -> tuple[str, Query]:
        return self.joined(depth) if self.chance.random() < 0.4 else self.source(depth)

    def calls(self, source: Query, count: int) -> list[str]:
        made = []
        for _ in range(count):
            number = self.number(source)
            call = self.chance.choice(
                [
                    "count(*)",
                    f"count({number})",
                    f"sum({number})",
                    f"min({number})",
                    f"max({number})",
                    f"count(distinct {number})",
                ]
            )
            if self.chance.random() < 0.15 and call != "count(*)":
                call += f" filter (where {self.condition(source, -1)})"
            made.append(call)
        return made

    def aggregate(self, depth: int) -> Query:
        text, source = self.from_anything(depth)
        keys = self.some(source, 2)
        written = [f"{name} % 2" if kind == "int" and self.chance.random() < 0.15 else name for name, kind in keys]
        shown = [place for place in range(len(keys)) if self.chance.random() < 0.8]
        parts = [f"{written[place]} as c{place}" for place in shown]
        columns = [(f"c{place}", keys[place][1]) for place in shown]
        calls = self.calls(source, self.chance.randint(0 if parts else 1, 2))
        parts += [f"{call} as v{number}" for number, call in enumerate(calls)]
        columns += [(f"v{number}", "int") for number in range(len(calls))]
        having = (
            f" having {self.calls(source, 1)[0]} > {self.chance.randint(0, 2)}" if self.chance.random() < 0.3 else ""
        )
        grouped = ", ".join(written)
        if len(shown) == len(keys) and self.chance.random() < 0.3:
            grouped = ", ".join(str(place + 1) for place in range(len(keys)))
        sql = f"select {', '.join(parts)} from {text}{self.where(source, depth, 0.3)} group by {grouped}{having}"
        return Query(sql, tuple(columns))

    def grouping_sets(self, depth: int) -> Query:
        text, source = self.source(depth)
        keys = [name for name, _ in self.some(source, 2)]
        kinds = dict(source.columns)
        listed = ", ".join(keys)
        grouped = self.chance.choice(
            [f"rollup ({listed})", f"cube ({listed})", f"grouping sets (({listed}), ({keys[0]}))"]
        )
        parts = [f"{name} as c{number}" for number, name in enumerate(keys)]
        columns = [(f"c{number}", kinds[name]) for number, name in enumerate(keys)]
        sql = f"select {', '.join(parts)}, {self.calls(source, 1)[0]} as v from {text} group by {grouped}"
        return Query(sql, (*columns, ("v", "int")))

    def totals(self, depth: int) -> Query:
        text, source = self.from_anything(depth)
        calls = self.calls(source, self.chance.randint(1, 2))
        parts = [f"{call} as v{number}" for number, call in enumerate(calls)]
        sql = f"select {', '.join(parts)} from {text}{self.where(source, depth, 0.4)}"
        return Query(sql, tuple((f"v{number}", "int") for number in range(len(calls))))

    def window(self, depth: int) -> Query:
        text, source = self.from_anything(depth)
        order = ", ".join(name for name, _ in self.chance.sample(list(source.columns), len(source.columns)))
        parts, columns = [], []
        listed, columns_listed = self.listed(source, 2)
        for number in range(self.chance.choice([1, 1, 2])):
            partition = ", ".join(name for name, _ in self.some(source, 2))
            call = self.chance.choice([
                f"row_number() over (partition by {partition} order by {order})",
                f"sum({self.number(source)}) over (partition by {partition})",
                f"count(*) over (partition by {partition})",
                f"rank() over (partition by {partition} order by {self.number(source)} desc)",
                f"lag({self.number(source)}) over (partition by {partition} order by {order})",
            ])  # fmt: skip
            parts.append(f"{call} as w{number}")
            columns.append((f"w{number}", "int"))
        qualify = f" qualify w0 {self.chance.choice(['=', '<=', '>'])} 1" if self.chance.random() < 0.4 else ""
        sql = f"select {listed}, {', '.join(parts)} from {text}{self.where(source, depth, 0.3)}{qualify}"
        return Query(sql, (*columns_listed, *columns))

    def distinct(self, depth: int) -> Query:
        text, source = self.from_anything(depth)
        listed, columns = self.listed(source)
        return Query(f"select distinct {listed} from {text}{self.where(source, depth, 0.3)}", columns)

    def exploded(self, depth: int) -> Query:
        text, source = self.source(depth)
        listed, columns = self.listed(source)
        array = f"array({self.number(source)}, {self.number(source)})"
        sql = f"select {listed}, e from {text} lateral view explode({array}) made as e{self.where(source, 0, 0.3)}"
        return Query(sql, (*columns, ("e", "int")))

    def set_operation(self, depth: int) -> Query:
        first = self.query(depth - 1) if depth > 0 else self.selection(0)
        text, source = self.source(depth - 1)
        parts = [self.filler(source, kind) for _, kind in first.columns]
        second = f"select {', '.join(parts)} from {text}{self.where(source, 0, 0.3)}"
        word = self.chance.choice(
            ["union all", "union all", "union", "except", "intersect", "except all", "intersect all"]
        )
        return Query(f"select * from ({first.sql}) {word} {second}", first.columns)

    def filler(self, source: Query, kind: str) -> str:
        """A value of a type."""
        literal = {"int": "1", "string": "'a'", "timestamp_ntz": "cast('2026-03-01 00:00:00' as timestamp_ntz)"}[kind]
        return self.one_of(source, kind) or self.chance.choice([literal, "null"])


# --- changes


@dataclass(frozen=True, slots=True)
class Move:
    """From one state of all tables to the next: what the feeds list, and the times of both."""

    old: State
    new: State
    changes: State
    then: datetime
    now: datetime

    @property
    def changed(self) -> frozenset[str]:
        return frozenset(name for name, rows in self.changes.items() if rows)


def _value(chance: Random, kind: str) -> Any:
    if chance.random() < 0.25:
        return None
    if kind == "int":
        return chance.randint(0, 2)
    return (
        chance.choice("ab") if kind == "string" else START.replace(tzinfo=None) + timedelta(hours=chance.randint(-6, 2))
    )


def _row(chance: Random, name: str) -> Row:
    return tuple(_value(chance, kind) for kind in INPUTS[name].values())


def first_state(chance: Random) -> State:
    return {name: tuple(_row(chance, name) for _ in range(chance.choice([0, 2, 3, 4, 5]))) for name in INPUTS}


def next_move(chance: Random, old: State, then: datetime, *, added_only: bool = False) -> Move:
    """One to three tables change, or only time passes."""
    new, changes = dict(old), dict.fromkeys(INPUTS, ())
    for name in chance.sample(list(INPUTS), chance.choice([0, 1, 1, 1, 2, 3])):
        rows, feed = list(old[name]), []
        for _ in range(chance.choice([1, 1, 2, 3])):
            _edit(chance, name, rows, feed, "insert" if added_only else None)
        new[name], changes[name] = tuple(rows), tuple(feed)
    hours = 0 if added_only else chance.choice([0, 0, 1, 2, 3])
    return Move(old, new, changes, then, then + timedelta(hours=hours))


def _edit(chance: Random, name: str, rows: list[Row], feed: list[Row], kind: str | None) -> None:
    kind = kind or chance.choice(["insert", "duplicate", "delete", "update", "update", "same", "back", "all"])
    if kind == "insert" or not rows:
        rows.append(_row(chance, name))
        feed.append(rows[-1])
        return
    place = chance.randrange(len(rows))
    before = rows[place]
    if kind == "duplicate":
        rows.append(before)
        feed.append(before)
    elif kind == "delete":
        feed.append(rows.pop(place))
    elif kind == "update":
        column = chance.randrange(len(before))
        kinds = list(INPUTS[name].values())
        rows[place] = (*before[:column], _value(chance, kinds[column]), *before[column + 1 :])
        feed += [before, rows[place]]
    elif kind == "same":
        feed += [before, before]
    elif kind == "back":
        other = _row(chance, name)
        feed += [before, other, other, before]
    elif chance.random() < 0.3:
        feed += rows
        rows.clear()


# --- judging


class Wrong(AssertionError):  # noqa: N818  # what failed is a rule
    """A program of a refresh that did not give what the whole query gives."""

    def __init__(self, sql: str, move: Move, why: str) -> None:
        self.sql, self.move, self.why = sql, move, why
        super().__init__(f"{why}\n{sql}")


@dataclass(slots=True)
class Bench:
    """DuckDB with the tables of one move."""

    connection: duckdb.DuckDBPyConnection = field(default_factory=lambda: duckdb.connect(config={"threads": 1}))
    translated: dict[str, str] = field(default_factory=dict)
    texts: dict[tuple[int, str, frozenset[str] | None], str | None] = field(default_factory=dict)
    cases: int = 0
    keys: int = 0
    moved: int = 0
    """Cases in which the result changed."""

    def __post_init__(self) -> None:
        self.connection.execute("set timezone = 'UTC'")
        for name, columns in INPUTS.items():
            listed = ", ".join(f"{own} {_DUCKDB[kind]}" for own, kind in columns.items())
            for suffix in ("", "__old", "__changes"):
                self.connection.execute(f"create table {name}{suffix} ({listed})")

    def load(self, move: Move) -> None:
        for name in INPUTS:
            for suffix, state in (("", move.new), ("__old", move.old), ("__changes", move.changes)):
                self.fill(f"{name}{suffix}", state[name])

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
        insert = f"; insert into {table} values {values}" if rows else ""
        self.connection.execute(f"delete from {table}{insert}")

    def rows(self, sql: str) -> list[Row]:
        return self.connection.execute(self._translated(sql)).fetchall()

    def _translated(self, sql: str) -> str:
        if sql not in self.translated:
            self.translated[sql] = duckdb_sql(sql)
        return self.translated[sql]

    def knows(self, sql: str, now: datetime) -> bool:
        """Whether DuckDB can run what the author wrote: it knows fewer correlated subqueries than there are."""
        try:
            self.rows(at_moment(sql, now))
        except (duckdb.BinderException, duckdb.NotImplementedException):
            return False
        return True

    def keyed_by(self, sql: str) -> list[Row]:
        self.connection.execute(f"create or replace temp table penstock_keys as {self._translated(sql)}")
        return self.connection.execute("from penstock_keys").fetchall()

    def written(self, program: Incremental, name: str, move: Move) -> str | None:
        """A program's text; those that do not ask for the time are written once."""
        place = (id(program), name, move.changed if name == "keys" else None)
        if program.timed or place not in self.texts:
            times = {"keys": (move.changed, move.then, move.now)}.get(name, (move.now,))
            self.texts[place] = getattr(program, name)(*times)
        return self.texts[place]

    def refreshed(
        self, program: Incremental, before: Counter[Row], move: Move
    ) -> tuple[Counter[Row], list[Row] | None]:
        """The table after a refresh, and the keys that were computed again; None: nothing was."""
        keys = self.written(program, "keys", move)
        if keys is None:
            return before, None
        listed = self.keyed_by(keys)
        if not program.key:
            return (Counter(self.rows(self.written(program, "rows", move))) if listed else before), listed
        names = [name.lower() for name in (*program.columns, *program.hidden)]
        places = [names.index(name.lower()) for name in program.key]
        chosen = set(listed)

        def of(row: Row) -> Row:
            return tuple(row[place] for place in places)

        kept = Counter({row: count for row, count in before.items() if of(row) not in chosen})
        made = Counter(self.rows(self.written(program, "rows", move)))
        assert all(of(row) in chosen for row in made), "a row with another key"
        return kept + made, listed

    def judge(self, sql: str, program: Incremental, before: Counter[Row], move: Move) -> Counter[Row]:
        """The whole result after a move; Wrong where a refresh gives another one."""
        self.cases += 1
        asked = Counter(self.rows(at_moment(sql, move.now)))
        try:
            after = Counter(self.rows(self.written(program, "full", move)))
            refreshed, keys = self.refreshed(program, before, move)
        except (duckdb.Error, AssertionError) as error:
            raise Wrong(sql, move, str(error)) from error
        self.keys += len(keys or ())
        self.moved += after != before
        shown = Counter(row[: len(program.columns)] for row in after.elements())
        if shown != asked:
            raise Wrong(sql, move, f"the whole result is {dict(shown)}, and not {dict(asked)}")
        if refreshed != after:
            raise Wrong(sql, move, f"missing {dict(after - refreshed)}, too many {dict(refreshed - after)}")
        return after


def at_moment(sql: str, now: datetime) -> str:
    """What the author wrote, with the time of the query."""
    moment = f"cast('{now.replace(tzinfo=None).isoformat(' ')}' as timestamp_ntz)"
    return sql.replace("now()", moment).replace("current_timestamp()", moment)


def _literal(value: Any) -> str:
    if value is None:
        return "null"
    return f"'{value.isoformat()}'" if isinstance(value, datetime) else repr(value)


@dataclass(slots=True)
class Report:
    cases: int = 0
    queries: int = 0
    keys: int = 0
    moved: int = 0
    whole: Counter[str] = field(default_factory=Counter)
    """Why queries were computed whole."""
    shapes: Counter[str] = field(default_factory=Counter)


def run(seed: int, queries: int, moves: int, depths: Sequence[int] = (0, 1, 1, 2, 2)) -> Report:
    """Judge so many random queries over some random moves each; Wrong at the first that fails."""
    chance, bench, report = Random(seed), Bench(), Report()
    for _ in range(0, queries, 25):
        bench.texts.clear()
        programs = list(understood(chance, min(25, queries), report, depths))
        state, now = first_state(chance), START
        move = Move(state, state, dict.fromkeys(INPUTS, ()), now, now)
        bench.load(move)
        programs = [(sql, program) for sql, program in programs if bench.knows(sql, now)]
        tables = [Counter(bench.rows(program.full(now))) for _, program in programs]
        for _ in range(moves):
            move = next_move(chance, move.new, move.now)
            bench.load(move)
            for place, (sql, program) in enumerate(programs):
                tables[place] = bench.judge(sql, program, tables[place], move)
    report.cases, report.keys, report.moved = bench.cases, bench.keys, bench.moved
    return report


def run_appending(seed: int, queries: int, moves: int = 4) -> int:
    """As `run`, for queries that added rows only add rows to; how many cases were judged."""
    chance, bench, programs = Random(seed), Bench(), []
    while len(programs) < queries:
        author = Author(chance)
        query = chance.choice([author.selection, author.join, author.join, author.exploded])(chance.choice([0, 0, 1]))
        program = understand(query.sql, INPUTS)
        if isinstance(program, Incremental) and program.monotone:
            programs.append((query.sql, program))
    state = first_state(chance)
    bench.load(Move(state, state, dict.fromkeys(INPUTS, ()), START, START))
    tables = [Counter(bench.rows(program.full())) for _, program in programs]
    move = Move(state, state, {}, START, START)
    for _ in range(moves):
        move = next_move(chance, move.new, move.now, added_only=True)
        bench.load(move)
        for place, (sql, program) in enumerate(programs):
            added = program.appended(move.changed)
            tables[place] += Counter(bench.rows(added) if added is not None else ())
            if tables[place] != Counter(bench.rows(program.full())):
                raise Wrong(sql, move, "appended other rows than were added")
    return len(programs) * moves


def run_pruned(seed: int, queries: int) -> int:
    """Whether the rows of some keys come out the same if inputs have only the rows that `pushed` leaves."""
    chance, bench, cases = Random(seed), Bench(), 0
    for sql, program in list(understood(chance, queries, Report())):
        pushed = [one for one in program.pushed if one.unit is None]
        state = first_state(chance)
        move = next_move(chance, state, START)
        keys = program.keys(move.changed, move.then, move.now)
        if not pushed or keys is None or not bench.knows(sql, START):
            continue
        bench.load(move)
        listed = bench.keyed_by(keys)
        whole = Counter(bench.rows(program.rows(move.now)))
        for one in pushed:
            place = list(INPUTS[one.input]).index(one.column)
            allowed = {key[one.key] for key in listed}
            bench.fill(one.input, [row for row in move.new[one.input] if row[place] in allowed])
            if Counter(bench.rows(program.rows(move.now))) != whole:
                raise Wrong(sql, move, f"{one} leaves out rows")
            cases += 1
            bench.fill(one.input, move.new[one.input])
    return cases


def settled(sql: str, old: State, new: State, **other: Any) -> tuple[Counter[Row], set[Row]]:
    """The visible rows after a refresh from one state to another, which are right, and the keys computed again.

    The feed has the rows that are in one of both states only, unless `changes` says otherwise.
    """
    before, after = ({name: state.get(name, ()) for name in INPUTS} for state in (old, new))
    feed = {
        name: tuple((Counter(before[name]) - Counter(after[name])).elements())
        + tuple((Counter(after[name]) - Counter(before[name])).elements())
        for name in INPUTS
    }
    feed |= other.get("changes", {})
    move = Move(before, after, feed, other.get("then", START), other.get("now", START))
    program = understand(sql, INPUTS)
    assert isinstance(program, Incremental), program
    bench = Bench()
    bench.load(replace(move, new=move.old))
    table = Counter(bench.rows(program.full(move.then)))
    bench.load(move)
    bench.judge(sql, program, table, move)
    result, keys = bench.refreshed(program, table, move)
    shown = Counter(row[: len(program.columns)] for row in result.elements())
    return shown, set(keys or ())


def understood(
    chance: Random, count: int, report: Report, depths: Sequence[int] = (0, 1, 1, 2, 2)
) -> Iterator[tuple[str, Incremental]]:
    for _ in range(count):
        query = Author(chance).query(chance.choice(depths))
        program = understand(query.sql, INPUTS)
        report.queries += 1
        if isinstance(program, FullOnly):
            report.whole[f"{program.code}: {program.reason}"] += 1
        else:
            report.shapes[program.shape] += 1
            yield query.sql, program


# --- what failed, smaller and on file


def fails(sql: str, move: Move) -> str | None:
    """Why the refresh of a query is wrong for a move; None when it is right or there is none."""
    try:
        program = understand(sql, INPUTS)
        if isinstance(program, FullOnly):
            return None
        bench = Bench()
        bench.load(replace(move, new=move.old))
        before = Counter(bench.rows(program.full(move.then)))
        bench.load(move)
        bench.judge(sql, program, before, move)
    except Wrong as wrong:
        return wrong.why
    except (duckdb.Error, sqlglot.errors.SqlglotError):
        return None
    return None


def shrunk(sql: str, move: Move) -> tuple[str, Move]:
    """The smallest failing case that is found by leaving things out."""
    while True:
        smaller = next((case for case in _smaller(sql, move) if fails(*case) is not None), None)
        if smaller is None:
            return sql, move
        sql, move = smaller


def _smaller(sql: str, move: Move) -> Iterator[tuple[str, Move]]:
    yield from ((text, move) for text in _shorter(sql))
    if move.now != move.then:
        yield sql, replace(move, now=move.then)
    for name in INPUTS:
        for row in set(move.old[name]) | set(move.new[name]) | set(move.changes[name]):
            fewer = [{**state, name: _without(state[name], row)} for state in (move.old, move.new, move.changes)]
            yield sql, replace(move, old=fewer[0], new=fewer[1], changes=fewer[2])


def _without(rows: tuple[Row, ...], row: Row) -> tuple[Row, ...]:
    return tuple(other for other in rows if other != row)


def _shorter(sql: str) -> Iterator[str]:
    tree = sqlglot.parse_one(sql, dialect="spark")
    count = sum(1 for _ in tree.walk())
    for place in range(count):
        for change in (_drop, _left, _right):
            copy = tree.copy()
            node = next(node for number, node in enumerate(copy.walk()) if number == place)
            changed = change(node, copy)
            if changed is not None:
                text = changed.sql(dialect="spark")
                if len(text) < len(sql):
                    yield text


def _drop(node: exp.Expr, tree: exp.Expr) -> exp.Expr | None:
    """Without a clause or an item of a list."""
    parent = node.parent
    if isinstance(node, exp.Where | exp.Having | exp.Qualify | exp.Join | exp.Filter) and not isinstance(
        parent, exp.Filter
    ):
        if isinstance(node, exp.Filter):
            node.replace(node.this)
        else:
            node.pop()
        return tree
    if isinstance(parent, exp.Select) and node.arg_key == "expressions" and len(parent.expressions) > 1:
        node.pop()
        return tree
    return None


def _left(node: exp.Expr, tree: exp.Expr) -> exp.Expr | None:
    return _side(node, tree, "this")


def _right(node: exp.Expr, tree: exp.Expr) -> exp.Expr | None:
    return _side(node, tree, "expression")


def _side(node: exp.Expr, tree: exp.Expr, side: str) -> exp.Expr | None:
    if not isinstance(node, exp.SetOperation | exp.And | exp.Or | exp.Add | exp.Mod):
        return None
    kept = node.args[side]
    if node is tree:
        return kept
    node.replace(kept)
    return tree


def kept_on_file(folder: Path, sql: str, move: Move, why: str) -> Path:
    """A case as a file that `replayed` reads."""
    states = {name: _encoded(getattr(move, name)) for name in ("old", "new", "changes")}
    case = {"sql": sql, "why": why, "then": move.then.isoformat(), "now": move.now.isoformat(), **states}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(case, indent=1)
    path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:8]}.json"
    path.write_text(f"{text}\n", encoding="utf-8")
    return path


def replayed(path: Path) -> str | None:
    """Why the case of a file fails; None when it does not any more."""
    case = json.loads(path.read_text(encoding="utf-8"))
    old, new, changes = (_decoded(case[name]) for name in ("old", "new", "changes"))
    times = (datetime.fromisoformat(case[name]) for name in ("then", "now"))
    return fails(case["sql"], Move(old, new, changes, *times))


def _encoded(state: State) -> dict[str, list[list[Any]]]:
    return {
        name: [[value.isoformat() if isinstance(value, datetime) else value for value in row] for row in rows]
        for name, rows in state.items()
    }


def _decoded(state: Mapping[str, list[list[Any]]]) -> State:
    kinds = {name: list(columns.values()) for name, columns in INPUTS.items()}
    return {
        name: tuple(
            tuple(
                datetime.fromisoformat(value) if value is not None and kind == "timestamp_ntz" else value
                for value, kind in zip(row, kinds[name], strict=True)
            )
            for row in rows
        )
        for name, rows in state.items()
    }
