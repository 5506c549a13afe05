"""A project on disk whose state lies in a PostgreSQL server of its own: written, run and looked at by tests."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
from arrow_engine import ArrowEngine
from deltalake import DeltaTable, write_deltalake

from penstock.answers.status import status
from penstock.engine.values.job import Step
from penstock.runtime.place.workspace import Workspace, apply, no_step, open_workspace
from penstock.runtime.process.progress import Progress, Silent
from penstock.runtime.redo.rerun import record, request
from penstock.runtime.serve.run import Summary, run
from penstock.state.store import State
from penstock.values.intervals import IntervalSet
from penstock.values.records import Generation, TaskRecord

SCHEMA = "runtime_tests"
_EMPTY = """
do $$
declare name text;
begin
  set local session_replication_role = replica;  -- no foreign keys: the order does not matter
  for name in select tablename from pg_tables where schemaname = current_schema() and tablename <> 'migration' loop
    execute format('delete from %I', name);
  end loop;
  create or replace function clock() returns timestamptz language sql volatile as 'select clock_timestamp()';
end $$
"""
Columns = Mapping[str, Sequence[object]]


@dataclass
class Deployment:
    """A folder with a project in it, and short words for what people and programs do to it."""

    root: Path
    dsn: str = field(repr=False)
    schema: str = SCHEMA
    environ: dict[str, str] = field(default_factory=dict, repr=False)
    engine: ArrowEngine = field(default_factory=ArrowEngine, repr=False)

    def __post_init__(self) -> None:
        self.environ = {**os.environ, "PENSTOCK_STATE": self.dsn, **self.environ}
        self.write(
            "penstock.yml",
            "name: trial\ndatabases: {external: raw, transformation: t}\n"
            f'warehouse: "{self.root}/warehouse"\n'
            f'targets: {{test: {{state: "${{PENSTOCK_STATE}}", schema: "{self.schema}"}}}}\n',
        )

    @classmethod
    def empty(cls, root: Path, dsn: str) -> Deployment:
        """With tables that are made once for all tests and emptied for each: that is much quicker."""
        State.migrated(dsn, SCHEMA)
        deployment = cls(root, dsn)
        deployment.execute(_EMPTY)
        return deployment

    # what people write

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def source(self, name: str, settings: str = "axis: number\n", location: str | None = None) -> None:
        place = location or str(self.landing(name))
        self.write(f"models/external/{name}.yml", f'location: "{place}"\nposition: n\n{settings}')

    def model(self, name: str, sql: str, matter: str = "interval: 10") -> None:
        self.write(f"models/transformations/{name}.sql", f"---\nposition: n\n{matter}\n---\n{sql}\n")

    def forget(self, name: str) -> None:
        """The model's file is taken away."""
        (self.root / f"models/transformations/{name}.sql").unlink()

    # what others write

    def landing(self, name: str) -> Path:
        return self.root / "landing" / name

    def land(self, name: str, positions: Sequence[int], factor: int = 7, **columns: Sequence[object]) -> None:
        """One commit of new rows: n, and a value that is n times the factor."""
        values = {"n": positions, "value": [n * factor for n in positions], **columns}
        commit(self.landing(name), values)

    # what Penstock does

    @contextmanager
    def opened(self, step: Step = no_step) -> Iterator[Workspace]:
        with open_workspace(self.root, self.environ, step=step) as workspace:
            workspace.engine = self.engine  # type: ignore[assignment]
            yield workspace

    def run(self, *names: str, step: Step = no_step, progress: Progress | None = None) -> Summary:
        """Apply what is on disk, then work until nothing is ready."""
        with self.opened(step) as workspace:
            apply(workspace)
            return run(workspace, workspace.built(names), progress or Silent(), named=bool(names))

    def rerun(self, name: str, start: int | None = None, end: int | None = None) -> Summary:
        """Mark a range and work on what is affected, as the command does."""
        with self.opened() as workspace:
            model = workspace.project.graph.interval_model(f"t.{name}")
            asked = request(workspace, model, start, end)
            record(workspace, asked, "test")
            return run(workspace, workspace.interval_models((model.name, *asked.descendants)), Silent())

    # what is there afterwards

    def current(self, name: str) -> Generation:
        with self.opened() as workspace:
            return workspace.state.views.whole().current[f"t.{name}"]

    def place(self, name: str) -> str:
        """Where the served table lies."""
        with self.opened() as workspace:
            return workspace.resolver.table(workspace.state.views.whole().current[f"t.{name}"].location)

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """What is served, as sorted tuples in the order of the columns' names."""
        with self.opened() as workspace:
            return served(workspace, name)

    def covered(self, name: str) -> IntervalSet:
        return self.current(name).covered

    def stale(self, name: str) -> IntervalSet:
        return self.current(name).stale

    def status(self, name: str) -> dict[str, object]:
        with self.opened() as workspace:
            answer = status(workspace.resolver, workspace.state.views.whole(), (name,))["models"]
            assert isinstance(answer, list)
            return dict(answer[0])

    def tasks(self, name: str | None = None) -> list[TaskRecord]:
        """All there ever were, oldest first."""
        with self.opened() as workspace:
            records = workspace.state.history.tasks(name and f"t.{name}", False, True, 10_000)
        return sorted(records, key=lambda task: task.id)

    def chunks(self, name: str) -> list[tuple[int, int]]:
        """Every chunk that was computed and accepted, as often as it was."""
        done = [task for task in self.tasks(name) if task.state == "succeeded"]
        return sorted((chunk.start, chunk.end) for task in done for chunk in task.order.chunks)

    def most_commits(self, name: str) -> int:
        """How many commits the task has in the log that has most."""
        commits: Counter[str] = Counter()
        for file in Path(self.place(name), "_delta_log").glob("*.json"):
            actions = [json.loads(line) for line in file.read_text().splitlines()]
            commits.update(action["txn"]["appId"] for action in actions if "txn" in action)
        return max(commits.values(), default=0)

    def move_clock(self, seconds: float) -> None:
        """The database's clock goes ahead, for everybody who asks for it."""
        body = f"select clock_timestamp() + interval '{seconds} seconds'"
        self.execute(f"create or replace function clock() returns timestamptz language sql volatile as $$ {body} $$")

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        with self.opened() as workspace:
            cursor = workspace.state.database.connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


def commit(place: Path | str, columns: Columns, mode: Literal["append", "overwrite"] = "append") -> None:
    """What another program does to a table; `n` is its position."""
    arrays = {name: pa.array(list(values)) for name, values in columns.items()}
    arrays["n"] = arrays["n"].cast(pa.int64())
    write_deltalake(str(place), pa.table(arrays), mode=mode)


def served(workspace: Workspace, name: str) -> list[tuple[object, ...]]:
    """The accepted snapshot of the serving generation, read by delta-rs."""
    pin = workspace.resolver.pin(f"t.{name}", workspace.state.views.whole(), serving=True)
    if pin is None:
        return []
    table = pa.table(DeltaTable(workspace.resolver.located(pin).location, version=pin.snapshot).to_pyarrow_table())
    names = sorted(table.column_names)
    return sorted(tuple(row[name] for name in names) for row in table.to_pylist())


class Heard(Silent):
    """Keeps what a person would read."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)
