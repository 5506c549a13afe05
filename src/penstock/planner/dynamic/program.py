"""Which SQL keeps a dynamic table fresh?

`understand` reads the query of a table once. What it gives writes the programs of a refresh: which keys may have other
rows, and what the rows of these keys are now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlglot import exp
from sqlglot.errors import SqlglotError

from penstock.planner.dynamic.plans.algebra import Distinct, Node, Nothing, Scan, column, expressions, walk
from penstock.planner.dynamic.plans.dialect import Verbatim
from penstock.planner.dynamic.plans.kinds import Facts
from penstock.planner.dynamic.plans.names import Names
from penstock.planner.dynamic.plans.placing import timed
from penstock.planner.dynamic.plans.printing import sql_of
from penstock.planner.dynamic.reading.allowed import check
from penstock.planner.dynamic.reading.queries import Reader
from penstock.planner.dynamic.refusals import FullOnly, Refused
from penstock.planner.dynamic.rules import changes
from penstock.planner.dynamic.rules.appending import appended, monotone
from penstock.planner.dynamic.rules.pushing import Pushed, pushed
from penstock.planner.dynamic.rules.restricting import Listed, restricted
from penstock.planner.dynamic.rules.row_keys import Keyed, keyed
from penstock.planner.dynamic.rules.states import OLD, Step, new
from penstock.planner.dynamic.shapes import shape_of

KEYS = "penstock_keys"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Incremental:
    """A table whose changed rows can be computed from the changed rows of its inputs."""

    shape: str
    """What it is, for people."""
    columns: tuple[str, ...]
    hidden: tuple[str, ...]
    """Columns that the stored table has in addition."""
    key: tuple[str, ...]
    """Columns, visible or hidden; none for a table that always has one row."""
    monotone: bool
    """Added rows of the inputs only add rows: `appended` may be used."""
    timed: bool
    """It asks for the time, so its rows can change although no input does."""
    reads_old: frozenset[str]
    """Inputs whose old state the program for the keys reads if they changed."""
    pushed: tuple[Pushed, ...]
    """Columns of inputs that have to equal a key, wherever the program for the rows reads that input."""
    _keyed: Keyed
    _titles: Mapping[str, str]
    _facts: Facts
    _taken: frozenset[str]

    def full(self, now: datetime | None = None) -> str:
        """All rows, with hidden columns."""
        return sql_of(new(self._keyed.plan, now), self._shown())

    def keys(self, changed: frozenset[str], then: datetime | None = None, now: datetime | None = None) -> str | None:
        """The keys whose rows may differ, as `key_0`, `key_1`, …; None when there are none.

        For every changed input it reads `<name>__changes`, all of whose columns are those of the input, and
        `<name>__old` for those of `reads_old`. Without a key it gives a row if there is a change at all.
        """
        step = self._step(changed, then, now)
        rows = changes.changed(self._keyed.plan, frozenset(self._keyed.key), step)
        if isinstance(rows, Nothing):
            return None
        return sql_of(Distinct(rows), [(name, f"key_{number}") for number, name in enumerate(self._keyed.key)])

    def rows(self, now: datetime | None = None) -> str:
        """The rows, with hidden columns, whose key is in the relation `penstock_keys`."""
        if not self.key:
            return self.full(now)
        plan, _ = _looked_up(self._keyed, self._facts, Names(self._taken))
        return sql_of(new(plan, now), self._shown())

    def appended(self, changed: frozenset[str]) -> str | None:
        """The rows to add where `<name>__changes` has the rows that were added to the inputs; None when there are none.

        Where several inputs changed it also reads `<name>__old`.
        """
        if not self.monotone:
            raise ValueError("added rows may change other rows of this table")
        rows = appended(self._keyed.plan, self._step(changed, None, None))
        return None if isinstance(rows, Nothing) else sql_of(rows, self._shown())

    def _step(self, changed: frozenset[str], then: datetime | None, now: datetime | None) -> Step:
        return Step(changed, then, now, self._facts, Names(self._taken))

    def _shown(self) -> list[tuple[str, str]]:
        return [(name, self._titles[name]) for name in (*self._keyed.visible, *self._keyed.hidden)]


def understand(
    sql: str, inputs: Mapping[str, Mapping[str, str]], declared_key: tuple[str, ...] = ()
) -> Incremental | FullOnly:
    """How the table of a query is kept fresh.

    `inputs` are the relations that the query may read, with the types of their columns in order.
    """
    try:
        return _understood(sql, inputs, declared_key)
    except Refused as refused:
        return refused.answer
    except SqlglotError:
        return FullOnly("SYNTAX_UNKNOWN", "it has syntax that only Spark knows")
    except RecursionError:
        return FullOnly("TOO_LARGE", "it is nested too deeply")


def _understood(sql: str, inputs: Mapping[str, Mapping[str, str]], declared_key: tuple[str, ...]) -> Incremental:
    tree = Verbatim().parse(sql)[0]
    if not isinstance(tree, exp.Query):
        raise Refused("SYNTAX_UNKNOWN", "it is not a SELECT")
    check(tree)
    reader = Reader(inputs)
    read = reader.query(tree, {}, None)
    shown = [title.title for title in read.titles]
    _named(shown)
    plan = _root(read.plan, tuple(title.value for title in read.titles)) or reader.shown(read)
    facts = reader.facts
    by_title = {title.lower(): name for title, name in zip(shown, plan.columns, strict=True)}
    missing = [name for name in declared_key if name.lower() not in by_title]
    if missing:
        raise Refused("KEY_MISSING", f"it has no column {missing[0]}, which is its declared key")
    found = keyed(plan, facts, reader.names, [by_title[name.lower()] for name in declared_key])
    hidden = {name: f"__penstock_k{number}" for number, name in enumerate(found.hidden)}
    titles = dict(zip(found.visible, shown, strict=True)) | hidden
    taken = frozenset(name for node in walk(found.plan) for name in node.columns)
    every = Step(frozenset(inputs), _EPOCH, _EPOCH + timedelta(days=1), facts, Names(taken))
    trial = changes.changed(found.plan, frozenset(found.key), every)  # what cannot be computed is refused here
    reads_old = {node.source for node in walk(trial) if isinstance(node, Scan) and node.relation.endswith(OLD)}
    _, listed = _looked_up(found, facts, Names(taken))
    return Incremental(
        shape=shape_of(found.plan),
        columns=tuple(shown),
        hidden=tuple(hidden.values()),
        key=tuple(titles[name] for name in found.key),
        monotone=monotone(found.plan),
        timed=any(timed(*expressions(node)) for node in walk(found.plan)),
        reads_old=frozenset(reads_old),
        pushed=pushed(found.plan, listed.lookups, facts),
        _keyed=found,
        _titles=titles,
        _facts=facts,
        _taken=taken,
    )


def _named(titles: list[str]) -> None:
    if not all(titles):
        raise Refused("UNNAMED_COLUMN", "a column has no name (give it one with AS)")
    lower = [title.lower() for title in titles]
    twice = next((title for title in lower if lower.count(title) > 1), None)
    if twice is not None:
        raise Refused("NOT_RESOLVED", f"two columns are called {twice}")


def _root(plan: Node, values: tuple[exp.Expr, ...]) -> Node | None:
    """The plan itself where it has just the columns that are shown."""
    return plan if values == tuple(column(name) for name in plan.columns) else None


def _looked_up(found: Keyed, facts: Facts, names: Names) -> tuple[Node, Listed]:
    numbers = range(len(found.key))
    keys = tuple(names.fresh("key") for _ in numbers)
    relation = Scan(KEYS, "", keys, tuple(f"key_{number}" for number in numbers))
    listed = Listed(relation, facts, names)
    return restricted(found.plan, {n: column(name) for n, name in enumerate(found.key)}, listed), listed


__all__ = ["KEYS", "FullOnly", "Incremental", "Pushed", "understand"]
