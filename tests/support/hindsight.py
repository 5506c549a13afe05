"""A chain of four levels whose sources change after the fact, and what must have been computed again, row by row.

What is expected is worked out from the rows alone: of each table, commit by commit, the positions whose rows differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment

from penstock.errors import UsageError
from penstock.runtime.place.workspace import Workspace, apply
from penstock.runtime.process.progress import Silent
from penstock.runtime.redo import invalidate as invalidating
from penstock.runtime.redo import rerun as rerunning
from penstock.runtime.serve.run import run
from penstock.values.intervals import IntervalSet

Row = tuple[int, ...]
Multiset = Counter[Row]
Kind = Literal["fresh", "late", "early", "update", "delete", "expire", "cut", "empty", "rewrite", "replace", "restore",
               "compact", "merge", "spare", "notes", "rerun", "invalidate"]  # fmt: skip
Happening = tuple[Kind, int, int, int]
"""What happens, and three numbers that say where and how."""
SIZES = {"copy": 10, "rolling": 15, "either": 20, "peaks": 30, "alerts": 10, "facts": 10}
LOOKS = {"rolling": (7, 0), "peaks": (3, 4)}
"""How far before and after a chunk its rows are read."""
INPUTS = {
    "copy": ("numbers",),
    "rolling": ("copy",),
    "either": ("rolling", "spare", "notes"),
    "peaks": ("either",),
    "alerts": ("either",),
    "facts": ("either",),
}
SOURCES = ("numbers", "spare", "notes")
APPENDING = "unique_key: [n, value]\nupdate_strategy: append"
MODELS = {
    # small differences vanish here
    "copy": ("interval: 10", "select n, value - value % 4 as value from {{ ref('raw.numbers') }}"),
    "rolling": (
        "interval: 15\ndependencies: [{model: t.copy, before: 7}]",
        "select a.n, sum(b.value) as value from {{ ref('t.copy') }} a "
        "join {{ ref('t.copy') }} b on b.n >= a.n - 7 and b.n <= a.n group by a.n",
    ),
    "either": (
        "interval: 20\ndependencies: [[t.rolling, raw.spare], {model: raw.notes, optional: true}]",
        "select r.n, r.value, coalesce(k.value, 0) as note from {{ ref('t.rolling') }} r "
        "left join {{ ref('raw.notes') }} k on k.n = r.n",
    ),
    "peaks": (
        "interval: 30\ndependencies: [{model: t.either, before: 3, after: 4}]",
        "select a.n, max(b.value + b.note) as value from {{ ref('t.either') }} a "
        "join {{ ref('t.either') }} b on b.n >= a.n - 3 and b.n <= a.n + 4 group by a.n",
    ),
    "alerts": (f"interval: 10\n{APPENDING}", "select n, value from {{ ref('t.either') }} where value % 3 = 0"),
    "facts": (
        f"interval: 10\n{APPENDING}\non_retract: retract",
        "select n, value from {{ ref('t.either') }} where value % 3 = 0",
    ),
}


@dataclass
class Touched:
    """The positions whose rows some commit changed."""

    really: set[int] = field(default_factory=set)
    announced: set[int] = field(default_factory=set)
    """With the whole of chunks that had no row before."""


@dataclass
class Table:
    """One table as it was when it was last looked at."""

    snapshot: int = -1
    rows: Multiset = field(default_factory=Counter)
    ever: set[Row] = field(default_factory=set)
    """All rows that it ever had."""

    def read(self, place: str, upto: int | None, size: int = 1) -> Touched:
        """Go on to a snapshot, commit by commit."""
        touched = Touched()
        for snapshot in range(self.snapshot + 1, (DeltaTable(place).version() if upto is None else upto) + 1):
            rows = _multiset(DeltaTable(place, version=snapshot).to_pyarrow_table())
            new = differing(self.rows, rows)
            touched.really |= new
            filled = {n - n % size for n in new} - {row[0] - row[0] % size for row in self.rows}
            touched.announced |= new | {n for cell in filled for n in range(cell, cell + size)}
            self.rows, self.snapshot = rows, snapshot
            self.ever |= rows.keys()
        return touched

    def within(self, low: int, high: int) -> Multiset:
        return Counter({row: count for row, count in self.rows.items() if low <= row[0] < high})


@dataclass
class Hindsight:
    """One deployment, what happens to it, and what is expected of it."""

    workspace: Workspace
    trial: Deployment
    tables: dict[str, Table] = field(default_factory=dict)
    before: dict[str, Table] = field(default_factory=dict)
    covered: dict[str, set[int]] = field(default_factory=dict)
    """By model: where its covered chunks begin."""
    used: dict[int, str] = field(default_factory=dict)
    """By chunk of `either`: the member that was read."""
    asked: dict[str, set[int]] = field(default_factory=dict)
    """By model: the chunks that people want to have computed again."""
    reported: dict[str, set[int]] = field(default_factory=dict)
    """By model: those of which it was only reported that they should."""
    stale: dict[str, set[int]] = field(default_factory=dict)
    """By model: the chunks that have to wait before they can be computed again."""
    expired: int | None = None
    outlived: set[int] = field(default_factory=set)
    """The chunks of `copy` that were made of rows that expired; they stay until they are computed again."""
    repaired: dict[str, Counter[int]] = field(default_factory=dict)
    """By model: how often chunks that were covered before were computed again in the last run."""
    last_task: int = 0
    tip: int = 95
    log: list[str] = field(default_factory=list)

    # what happens

    def happen(self, happening: Happening) -> None:
        kind, where, length, how = happening
        self.log.append(f"{kind} {where} {length} {how}")
        acts: Mapping[Kind, Callable[[int, int, int], None]] = {
            "fresh": self.fresh,
            "late": self.late,
            "early": lambda where, length, how: self.late(where - 60, length, how),
            "update": self.update,
            "delete": lambda where, length, _: self._delete(f"n >= {where} and n < {where + length}"),
            "expire": lambda where, *_: self._delete(f"n < {where}"),
            "cut": lambda where, *_: self._delete(f"n >= {where + 20}"),
            "empty": lambda *_: self._delete(None),
            "rewrite": self.rewrite,
            "replace": lambda where, length, how: self._write(_rows(range(where, where + length), how), "overwrite"),
            "restore": self.restore,
            "compact": lambda *_: self._compact(),
            "merge": self.merge,
            "spare": lambda where, length, how: self._land("spare", _rows(range(where, where + length, 3), how)),
            "notes": lambda where, length, how: self._land("notes", _rows(range(where, where + length, 5), how)),
            "rerun": self.rerun,
            "invalidate": self.invalidate,
        }
        acts[kind](where, length, how)

    @property
    def numbers(self) -> DeltaTable:
        return DeltaTable(str(self.trial.landing("numbers")))

    def fresh(self, _: int, length: int, how: int) -> None:
        """Rows above all that ever were."""
        self._write(_rows(range(self.tip, self.tip + length), how))
        self.tip += length

    def late(self, where: int, length: int, how: int) -> None:
        self._write(_rows(range(where, min(where + length, self.tip), 1 + how % 4), how))

    def update(self, where: int, length: int, how: int) -> None:
        self.numbers.update({"value": f"value + {how % 5}"}, predicate=f"n >= {where} and n < {where + length}")

    def rewrite(self, where: int, length: int, how: int) -> None:
        """As a reorganisation does: a whole range is another one now."""
        rows, predicate = _rows(range(where, where + length), how), f"n >= {where} and n < {where + length}"
        write_deltalake(str(self.trial.landing("numbers")), rows, mode="overwrite", predicate=predicate)
        self.tip = max(self.tip, where + length)

    def restore(self, where: int, *_: int) -> None:
        table = self.numbers
        if table.version():
            table.restore(where % table.version())

    def merge(self, where: int, length: int, how: int) -> None:
        rows = _rows(range(where, where + length, 2), how)
        merging = self.numbers.merge(rows, "target.n = source.n", source_alias="source", target_alias="target")
        with _several_matches():
            merging.when_matched_update({"value": "source.value"}).when_not_matched_insert_all().execute()
        self.tip = max(self.tip, where + length)

    def rerun(self, where: int, length: int, how: int) -> None:
        name = list(MODELS)[how % len(MODELS)]
        model = self.workspace.project.graph.interval_model(f"t.{name}")
        try:
            asked = rerunning.request(self.workspace, model, where, where + length)
        except UsageError:
            return
        rerunning.record(self.workspace, asked, "test")
        self.asked.setdefault(name, set()).update(self._cells(name, range(where, where + length)))

    def invalidate(self, where: int, length: int, how: int) -> None:
        """Somebody says that numbers changed. With a key it is a report: who has read what the log shows is spared."""
        model = self.workspace.project.graph.models["raw.numbers"]
        words = invalidating.Words("corrected", "test", f"{how % 3}" if how % 2 else None)
        report = invalidating.report(self.workspace, model, IntervalSet((where, where + length)), None, words)
        if invalidating.record(self.workspace, report, words):
            asked = self.asked if words.key is None else self.reported
            asked.setdefault("copy", set()).update(self._cells("copy", range(where, where + length)))

    def _write(self, rows: pa.Table, mode: Literal["append", "overwrite"] = "append") -> None:
        write_deltalake(str(self.trial.landing("numbers")), rows, mode=mode)
        self.tip = max([self.tip, *(n + 1 for n in rows["n"].to_pylist())])

    def _land(self, name: str, rows: pa.Table) -> None:
        write_deltalake(str(self.trial.landing(name)), rows, mode="append")

    def _delete(self, predicate: str | None) -> None:
        self.numbers.delete(predicate)

    def _compact(self) -> None:
        for name in SOURCES:
            DeltaTable(str(self.trial.landing(name))).optimize.compact()

    # what is expected

    def _cells(self, name: str, positions: Iterable[int]) -> set[int]:
        """Where the chunks of a model begin that hold these positions."""
        return {position - position % SIZES[name] for position in positions}

    def frozen(self, name: str, cell: int) -> bool:
        """All rows it was made of have left their source at the old end."""
        return name == "copy" and self.expired is not None and cell + SIZES[name] <= self.expired

    def half_gone(self, name: str, cell: int) -> bool:
        """Some have: they are missed when the chunk is computed again, and not before."""
        return name == "copy" and self.expired is not None and cell < self.expired < cell + SIZES[name]

    def blocked(self, name: str, cell: int) -> bool:
        """What it reads is not there, or to be computed again itself: a source that became shorter left it so."""
        before, after = LOOKS.get(name, (0, 0))
        window = range(cell - before, cell + SIZES[name] + after)
        if name == "copy":
            return self.frozen(name, cell)
        if (
            name == "either"
            and cell >= 60
            and cell + SIZES[name] <= max(row[0] for row in self.tables["spare"].rows) + 1
        ):
            return False
        parent = INPUTS[name][0]
        usable = self.covered.get(parent, set()) - self.stale[parent]
        lowest = min(self.covered.get(parent, set()), default=0)
        return any(n - n % SIZES[parent] not in usable for n in window if n >= lowest)

    def work(self) -> list[str]:
        """Run until nothing is ready; what is wrong then, in words."""
        summary = run(self.workspace, self.workspace.interval_models(()), Silent())
        self.log.append(f"run: {summary.tasks} tasks")
        if summary.failed:
            return [f"{summary.errors}"]
        done = self._done()
        touched = self._look()
        waiting = self._hold()
        self.outlived |= {c for c in self.before_covered.get("copy", ()) if c < (self.expired or c)}
        problems = [*self._wrong(done), *self._wrong_work(done, touched, waiting)]
        self.outlived -= {cell for cell in done["copy"] if not self.frozen("copy", cell)}
        self._remember()
        return problems

    def _done(self) -> dict[str, Counter[int]]:
        """By model: how often each chunk was computed."""
        done: dict[str, Counter[int]] = {name: Counter() for name in MODELS}
        tasks = self.workspace.state.history.tasks(None, False, True, 10_000)
        for task in sorted(tasks, key=lambda task: task.id):
            if task.id > self.last_task and task.state == "succeeded":
                name = task.model.removeprefix("t.")
                done[name].update(chunk.start for chunk in task.order.chunks)
                if name == "either":
                    self.used.update((chunk.start, task.order.choices[0]) for chunk in task.order.chunks)
        self.last_task = max((task.id for task in tasks), default=0)
        return done

    def _look(self) -> dict[str, Touched]:
        """By table: the positions whose rows any commit changed since the last look."""
        view = self.workspace.state.views.whole()
        self.expired = view.sources["raw.numbers"].expired_pos
        self.before = {name: Table(table.snapshot, table.rows) for name, table in self.tables.items()}
        touched = {}
        for name in SOURCES:
            record = view.sources[f"raw.{name}"]
            touched[name] = self._table(name).read(str(self.trial.landing(name)), record.snapshot)
        for name in MODELS:
            generation = view.current.get(f"t.{name}")
            if generation is not None and generation.accepted_snapshot is not None:
                touched[name] = self._table(name).read(
                    self.workspace.resolver.table(generation.location), generation.accepted_snapshot, SIZES[name]
                )
        return touched

    def _table(self, name: str) -> Table:
        return self.tables.setdefault(name, Table())

    def _hold(self) -> dict[str, set[int]]:
        """Note what every model covers; what had to wait until now."""
        view, waiting = self.workspace.state.views.whole(), self.stale
        for name, size in SIZES.items():
            generation = view.current.get(f"t.{name}")
            self.covered[name] = (
                {c for part in generation.covered for c in range(part.start, part.end, size)} if generation else set()
            )
            stale = {n for part in generation.stale for n in range(part.start, part.end)} if generation else set()
            self.stale = self.stale | {name: self._cells(name, stale)}
        return waiting

    def _wrong(self, done: Mapping[str, Counter[int]]) -> Iterator[str]:
        """Every table against its query over the tables below it, as they are stored."""
        for name, size in SIZES.items():
            stored = self._table(name)
            for cell in sorted(self.covered[name] - self.stale[name]):
                here, wanted = stored.within(cell, cell + size), self._wanted(name, cell, done)
                if name == "alerts":
                    wanted = self._said(cell, wanted, here)
                if here != wanted:
                    missing, strange = dict(wanted - here), dict(here - wanted)
                    yield f"{name} [{cell}, {cell + size}): {missing} missing, {strange} too many"
            if strays := [row for row in stored.rows if row[0] - row[0] % size not in self.covered[name]]:
                yield f"{name}: {strays} outside of everything covered"
            if stale := {cell for cell in self.stale[name] if not self.blocked(name, cell)}:
                yield f"{name}: {sorted(stale)} are still stale"
        yield from self._incomplete()

    def _wanted(self, name: str, cell: int, done: Mapping[str, Counter[int]]) -> Multiset:
        stays = name == "copy" and cell in self.outlived and not done[name][cell]
        return self._kept(name, cell) if stays else self._expected(name, cell)

    def _incomplete(self) -> Iterator[str]:
        """Everything that has rows is covered, as far as the chunks above can be whole."""
        positions = [row[0] for row in self.tables["numbers"].rows]
        if positions:
            for name, waits in (("copy", 10), ("rolling", 25), ("either", 45), ("peaks", 79), ("facts", 55)):
                whole = range(min(positions), max(positions) + 1 - waits)
                if missing := {n for n in whole if n - n % SIZES[name] not in self.covered[name]}:
                    yield f"{name}: {sorted(self._cells(name, missing))} are missing"

    def _said(self, cell: int, wanted: Multiset, here: Multiset) -> Multiset:
        """What was once said stays said; a chunk that was computed twice may have said more in between."""
        once = Counter({(n, value): 1 for n, _, value in self.tables["either"].ever})
        return wanted | self._kept("alerts", cell) | (here & once)

    def _kept(self, name: str, cell: int) -> Multiset:
        before = self.before.get(name)
        return Counter() if before is None else before.within(cell, cell + SIZES[name])

    def _expected(self, name: str, cell: int) -> Multiset:
        end = cell + SIZES[name]
        match name:
            case "copy":
                return _mapped(self._of("numbers", cell, end), lambda n, value: (n, value - value % 4))
            case "rolling":
                rows = self._of("copy", cell - 7, end)
                return _windowed(rows, range(cell, end), LOOKS[name], sum, multiplied=True)
            case "either":
                member = self.used[cell].removeprefix("raw.").removeprefix("t.")
                return _noted(self._of(member, cell, end), self._of("notes", cell, end))
            case "peaks":
                rows = _mapped(self._of("either", cell - 3, end + 4), lambda n, note, value: (n, value + note))
                return _windowed(rows, range(cell, end), LOOKS[name], max)
            case _:
                said = _mapped(self._of("either", cell, end), lambda n, _, value: (n, value))
                return Counter({row: 1 for row in said if row[1] % 3 == 0})

    def _of(self, name: str, low: int, high: int) -> Multiset:
        return self._table(name).within(low, high)

    def _wrong_work(
        self, done: Mapping[str, Counter[int]], touched: Mapping[str, Touched], waiting: Mapping[str, set[int]]
    ) -> Iterator[str]:
        """What was computed again against what had to be."""
        really = {name: changes.really for name, changes in touched.items()}
        announced = {name: changes.announced for name, changes in touched.items()}
        for name in MODELS:
            had = {cell for cell in self.before_covered.get(name, set()) if not self.frozen(name, cell)}
            again = Counter({cell: count for cell, count in done[name].items() if cell in had})
            self.repaired[name] = again
            asked = (self.asked.get(name, set()) | waiting.get(name, set())) & had
            wanted = {cell for cell in had if self._reached(name, cell, really, self._read(name, cell))}
            wanted |= {cell for cell in asked if not self.half_gone(name, cell)}
            allowed = (
                wanted
                | asked
                | self.reported.get(name, set())
                | {cell for cell in had if self._reached(name, cell, announced, INPUTS[name])}
            )
            if too_many := set(again) - allowed:
                yield f"{name}: {sorted(too_many)} were computed again, and nothing below them had changed"
            if missing := wanted - set(again) - self.stale[name]:
                yield f"{name}: {sorted(missing)} were not computed again"
            most = 1 if name in ("copy", "rolling") else 3
            if often := {cell: count for cell, count in again.items() if count > most}:
                yield f"{name}: {often} were computed again so often"

    def _reached(self, name: str, cell: int, touched: Mapping[str, set[int]], inputs: Iterable[str]) -> bool:
        before, after = LOOKS.get(name, (0, 0))
        window = range(cell - before, cell + SIZES[name] + after)
        return any(
            position in window and not (table == "numbers" and self.expired is not None and position < self.expired)
            for table in inputs
            for position in touched.get(table, ())
        )

    def _read(self, name: str, cell: int) -> tuple[str, ...]:
        if name != "either":
            return INPUTS[name]
        return self.used[cell].removeprefix("raw.").removeprefix("t."), "notes"

    def _remember(self) -> None:
        self.before_covered = {name: set(cells) for name, cells in self.covered.items()}
        self.asked, self.reported = {}, {}

    before_covered: dict[str, set[int]] = field(default_factory=dict)

    def story(self) -> str:
        return "\n".join(self.log)


@contextmanager
def beginning(trial: Deployment, *, feed: bool) -> Iterator[Hindsight]:
    """The chain over its first rows, built once."""
    for name, rows in (("numbers", range(20, 95)), ("spare", range(60, 160)), ("notes", range(0, 160, 7))):
        trial.source(name)
        configuration = {"delta.enableChangeDataFeed": "true"} if feed else None
        write_deltalake(str(trial.landing(name)), _rows(rows, len(name)), configuration=configuration)
    for name, (matter, sql) in MODELS.items():
        trial.model(name, sql, matter)
    with trial.opened() as workspace:
        apply(workspace)
        yield Hindsight(workspace, trial)


def differing(first: Multiset, second: Multiset) -> set[int]:
    """The positions whose rows are not the same."""
    return {row[0] for row in (first - second) | (second - first)}


def _rows(positions: Iterable[int], how: int) -> pa.Table:
    where = list(positions)
    values = [(n * (3 + how) + how) % 50 for n in where]
    return pa.table({"n": pa.array(where, pa.int64()), "value": pa.array(values, pa.int64())})


def _multiset(table: pa.Table) -> Multiset:
    """Rows with their position first, then the others in the order of their names."""
    names = ["n", *sorted(set(table.column_names) - {"n"})]
    return Counter(zip(*(table[name].to_pylist() for name in names), strict=True))


def _mapped(rows: Multiset, make: Callable[..., Row]) -> Multiset:
    mapped: Multiset = Counter()
    for row, count in rows.items():
        mapped[make(*row)] += count
    return mapped


def _windowed(
    rows: Multiset,
    cell: range,
    looks: tuple[int, int],
    value_of: Callable[[list[int]], int],
    *,
    multiplied: bool = False,
) -> Multiset:
    """One row per position; a position that has several rows is joined as often, which a sum shows."""
    windowed: Multiset = Counter()
    for n in {row[0] for row in rows if row[0] in cell}:
        times = sum(count for row, count in rows.items() if row[0] == n) if multiplied else 1
        seen = [row[1] for row in rows.elements() if n - looks[0] <= row[0] <= n + looks[1]]
        windowed[n, value_of(seen) * times] += 1
    return windowed


def _noted(rows: Multiset, notes: Multiset) -> Multiset:
    noted: Multiset = Counter()
    for (n, value), count in rows.items():
        own = Counter({note[1]: many for note, many in notes.items() if note[0] == n}) or Counter({0: 1})
        for note, many in own.items():
            noted[n, note, value] += count * many
    return noted


@contextmanager
def _several_matches() -> Iterator[None]:
    """A merge that finds two rows for one changes nothing."""
    try:
        yield
    except Exception as error:
        if "multiple source rows" not in str(error).lower():
            raise
