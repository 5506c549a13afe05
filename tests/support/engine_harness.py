"""An engine and its tables for each kind of engine, so that all of them are tested against one contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from memory_engine import MemoryEngine

from penstock.engine.commit import publish
from penstock.engine.stage import append
from penstock.engine.stage.compare import Comparison
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead, Job, Rendering
from penstock.runtime.work.attempt import Engine
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import Commit, Pin

Row = tuple[object, ...]
AXIS = "number"
COPY = "select n, value from {numbers}"


class Compares(Protocol):
    def compare(self, job: Job, snapshot: int) -> Comparison: ...


class EngineHarness(Protocol):
    """An engine and the tables it works on, by name."""

    @property
    def engine(self) -> Engine: ...

    def location(self, name: str) -> str: ...

    def land(self, name: str, rows: Sequence[tuple[int | None, int]]) -> None:
        """Another program appends rows: (n, value)."""

    def compact(self, name: str) -> None:
        """Another program puts all rows into one file."""

    def pin(self, name: str) -> Pin:
        """The newest snapshot."""

    def rows(self, name: str, snapshot: int | None = None) -> list[Row]:
        """Sorted, in the order of the columns' names."""

    def forget(self, patch: pytest.MonkeyPatch) -> None:
        """Break adoption: no commit is ever found again."""

    def trust(self, patch: pytest.MonkeyPatch) -> None:
        """Break the check that the files are still those that were read."""

    def blind(self, patch: pytest.MonkeyPatch) -> None:
        """Break the look-up of stored keys: none is ever found."""

    def compare(self, job: Job) -> Comparison:
        """The newest rows of the job's table against its query."""


@dataclass
class MemoryHarness:
    engine: MemoryEngine = field(default_factory=MemoryEngine)

    def location(self, name: str) -> str:
        return f"memory/{name}"

    def land(self, name: str, rows: Sequence[tuple[int | None, int]]) -> None:
        columns = ("n", "value")
        self.engine.land(self.location(name), [{"n": n, "value": v} for n, v in rows], columns=columns)

    def compact(self, name: str) -> None:
        self.engine.compact(self.location(name))

    def pin(self, name: str) -> Pin:
        place = self.location(name)
        return Pin(place, self.engine.snapshot(place).version, self.engine.table_id(place))

    def rows(self, name: str, snapshot: int | None = None) -> list[Row]:
        return self.engine.rows(self.location(name), snapshot)

    def forget(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(MemoryEngine, "find_commit", lambda *_: None)

    def trust(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("memory_engine.moved", lambda *_: None)

    def blind(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("memory_append.is_fresh", lambda *_: True)

    def compare(self, job: Job) -> Comparison:
        return self.engine.compare(job, self.engine.snapshot(job.location).version)


@dataclass
class DeltaHarness:
    """Tables in a folder, looked at by delta-rs."""

    root: Path
    engine: Engine
    questions: Compares

    def location(self, name: str) -> str:
        return str(self.root / name)

    def land(self, name: str, rows: Sequence[tuple[int | None, int]]) -> None:
        columns = {name: pa.array([row[i] for row in rows], pa.int64()) for i, name in enumerate(("n", "value"))}
        write_deltalake(self.location(name), pa.table(columns), mode="append")

    def compact(self, name: str) -> None:
        DeltaTable(self.location(name)).optimize.compact()

    def pin(self, name: str) -> Pin:
        table = DeltaTable(self.location(name))
        return Pin(self.location(name), table.version(), str(table.metadata().id))

    def rows(self, name: str, snapshot: int | None = None) -> list[Row]:
        table = pa.table(DeltaTable(self.location(name), version=snapshot).to_pyarrow_table())
        names = sorted(table.column_names)
        return sorted(
            (tuple(row[name] for name in names) for row in table.to_pylist()),
            key=lambda row: [(value is not None, value) for value in row],
        )

    def forget(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(publish, "find_commit", lambda *_, **__: None)

    def trust(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(publish, "moved", lambda *_: None)

    def blind(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(append, "able_to_hold", lambda *_: ())

    def compare(self, job: Job) -> Comparison:
        return self.questions.compare(job, DeltaTable(job.location).version())


def build(
    harness: EngineHarness,
    *chunks: tuple[int, int],
    sql: str = COPY,
    table: str = "copy",
    widened: bool = False,
    look: int = 0,
    **settings: object,
) -> Job:
    """A job over the newest snapshot of `numbers`; `{numbers}`, `{start}` and `{end}` stand for one rendering's own."""
    intervals = tuple(Interval(*chunk) for chunk in chunks)
    shares = [IntervalSet.of(intervals).parts] if widened else [(interval,) for interval in intervals]
    pin, column = harness.pin("numbers"), PositionColumn("n", AXIS)
    renderings = []
    for number, spans in enumerate(shares):
        window = IntervalSet.of((span.start - look, span.end + look) for span in spans)
        read = InputRead(f"penstock_in_{number}", "raw.numbers", pin, position=column, window=window)
        text = sql.format(numbers=read.view, start=spans[0].start, end=spans[-1].end)
        renderings.append(Rendering(spans, text, (read,)))
    job = Job(
        model=f"t.{table}",
        location=harness.location(table),
        position=column,
        chunks=intervals,
        renderings=tuple(renderings),
        cut=look > 0,
        frontier={"raw.numbers": pin},
        task=uuid4(),
        attempt=1,
        generation="g",
        epoch=3,
        digests={},
    )
    return replace(job, **settings)  # type: ignore[arg-type]


def silently(label: str) -> None:
    """No step is of interest."""


def run(harness: EngineHarness, job: Job, step: Callable[[str], None] = silently) -> Commit:
    """Stage and publish as a worker does: when the files moved, keep other rows and try again."""
    staged = harness.engine.stage(job, step)
    for _ in range(3):
        outcome = harness.engine.publish(staged, step)
        if isinstance(outcome, Commit):
            return outcome
        staged = harness.engine.restage(staged, step)
    raise AssertionError("the files moved three times")
