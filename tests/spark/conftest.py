"""A bench to work at, on the Spark session of the whole run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deployment import Deployment
from postgres_server import PostgresServer, own_server

from penstock.engine.commit.publish import FileSetChanged, publish
from penstock.engine.delta import DeltaEngine
from penstock.engine.spark.read import Reader
from penstock.engine.spark.session import Session
from penstock.engine.stage.staged import Staged
from penstock.engine.stage.staging import restage, stage
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead, Job, Rendering
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import Commit, Pin

HOUR = 3600
NEGATIVE = "select date_trunc('hour', at) hour, kind, count(*) n, -1D total from {events} group by all"
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


class Borrowed(Session):
    """The session that all tests share: neither a run nor a role may end it."""

    def __init__(self, shared: Session) -> None:
        self.__dict__ = shared.__dict__

    def stop(self, *, quick: bool = False) -> None:
        return


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with own_server() as started:
        yield started


@pytest.fixture
def deployment(tmp_path: Path, server: PostgresServer, session: Session) -> Deployment:
    """An empty project with a schema of its own, worked on by the shared session."""
    made = Deployment.empty(tmp_path, f"{server.dsn} options='-c synchronous_commit=off'")
    made.engine = DeltaEngine(Borrowed(session), {})  # type: ignore[assignment]
    return made


@dataclass
class Bench:
    """Tables in a folder, read and written the way an attempt does it."""

    as_text: ClassVar[Callable[[object], list[str]]] = staticmethod(lambda frame: as_text(frame))  # noqa: PLW0108
    moments: ClassVar[Callable[[int, float, int], pa.Array]] = staticmethod(lambda *given: moments(*given))  # noqa: PLW0108
    hourly: ClassVar[Callable[..., Job]] = staticmethod(lambda *given, **more: hourly_job(*given, **more))  # noqa: PLW0108
    HOUR: ClassVar[int] = HOUR
    START: ClassVar[int] = START
    session: Session
    root: Path
    steps: list[str] = field(default_factory=list)

    def path(self, name: str) -> str:
        return str(self.root / name)

    def sql(self, text: str) -> list[tuple[object, ...]]:
        """Rows of Spark's own answer; times come as text, free of the test machine's zone."""
        with self.session.attempt(f"test/{uuid4()}") as attempt:
            return [tuple(row) for row in attempt.spark.sql(text).collect()]

    def write(self, name: str, query: str, **options: str) -> str:
        """A Delta table written by Spark."""
        with self.session.attempt(f"test/{uuid4()}") as attempt:
            writer = attempt.spark.sql(query).write.format("delta").mode(options.pop("mode", "append"))
            if "partition" in options:
                writer = writer.partitionBy(*options.pop("partition").split(","))
            writer.options(**options).save(self.path(name))
        return self.path(name)

    def read(self, read: InputRead) -> list[str]:
        """The rows as our reader shows them, as JSON text in order."""
        with self.session.attempt(f"test/{uuid4()}") as attempt:
            reader = Reader(attempt.spark)
            return as_text(reader.frame(reader.planned(read)))

    def put(self, name: str, /, **columns: pa.Array) -> str:
        """A Delta table, or more rows of it, written by delta-rs: no Spark job."""
        write_deltalake(self.path(name), pa.table(columns), mode="append")
        return self.path(name)

    def rows(self, name: str) -> list[dict[str, object]]:
        """The rows as delta-rs shows them, in any but always the same order."""
        return sorted(DeltaTable(self.path(name)).to_pyarrow_table().to_pylist(), key=repr)

    def column(self, name: str, column: str, by: str) -> list[object]:
        """The values of one column in the order of another."""
        table = DeltaTable(self.path(name)).to_pyarrow_table().sort_by(by)
        return list(table.column(column).to_pylist())

    def spark_rows(self, name: str) -> list[str]:
        """The rows as Spark's own Delta reader shows them."""
        with self.session.attempt(f"test/{uuid4()}") as attempt:
            return as_text(attempt.spark.read.format("delta").load(self.path(name)))

    def input(self, name: str, position: str | None, axis: str = "second", view: str | None = None) -> InputRead:
        column = None if position is None else PositionColumn(position, axis)
        pin = Pin(self.path(name), DeltaTable(self.path(name)).version())
        return InputRead(view or name, f"raw.{name}", pin, position=column)

    def job(
        self,
        table: str,
        position: str,
        sql: str,
        chunks: Sequence[tuple[int, int]],
        reads: Sequence[InputRead],
        *,
        axis: str = "second",
        widened: bool = False,
        look: int = 0,
        **more: object,
    ) -> Job:
        """A job over `chunks`; `{view}` in the SQL stands for the view of one rendering."""
        intervals = tuple(Interval(*chunk) for chunk in chunks)
        shares = [IntervalSet.of(intervals).parts] if widened else [(interval,) for interval in intervals]
        renderings = []
        for number, spans in enumerate(shares):
            window = IntervalSet.of((span.start - look, span.end + look) for span in spans)
            named = {
                read.view: replace(read, view=f"{read.view}_{number}", window=None if read.position is None else window)
                for read in reads
            }
            edges = {"start": spans[0].start, "end": spans[-1].end}
            text = sql.format(**{view: one.view for view, one in named.items()}, **edges)
            renderings.append(Rendering(spans, text, tuple(named.values())))
        given: dict[str, object] = {"digests": {}, "cut": look > 0, **more}
        return Job(
            model=f"shop.{table}",
            location=self.path(table),
            position=PositionColumn(position, axis),
            chunks=intervals,
            renderings=tuple(renderings),
            frontier={read.name: read.pin for read in reads},
            task=uuid4(),
            attempt=1,
            generation="g",
            epoch=0,
            **given,  # type: ignore[arg-type]
        )

    def stage(self, job: Job) -> Staged:
        return stage(self.session, job, self.steps.append)

    def run(self, job: Job) -> tuple[Staged, Commit]:
        """Stage and publish; when somebody else changed the files, keep their rows once more."""
        staged = self.stage(job)
        for _ in range(3):
            done = publish(staged, self.steps.append)
            if not isinstance(done, FileSetChanged):
                return staged, done
            staged = restage(self.session, job, staged, self.steps.append)
        raise AssertionError("the file set changed three times")


def moments(start: int, every: float, count: int) -> pa.Array:
    return pa.array([int((start + i * every) * 10**6) for i in range(count)], pa.timestamp("us", "UTC"))


def as_text(frame: object) -> list[str]:
    from pyspark.sql import DataFrame

    assert isinstance(frame, DataFrame)
    columns = ", ".join("`" + name.replace("`", "``") + "`" for name in frame.columns)
    text = frame.selectExpr(f"to_json(struct({columns}), map('ignoreNullFields', 'false')) as j")
    return sorted(row[0] for row in text.collect())


@pytest.fixture
def bench(session: Session, tmp_path: Path) -> Bench:
    return Bench(session, tmp_path)


def put_events(bench: Bench) -> Callable[..., Job]:
    """Jobs over a source with one row every ten minutes of a day."""
    bench.put(
        "events",
        at=moments(START, 600, 144),
        kind=pa.array([i % 3 for i in range(144)]),
        value=pa.array([float(i) for i in range(144)]),
    )
    return lambda *hours, **more: hourly_job(bench, *hours, **more)


def hourly_job(bench: Bench, *hours: int, **more: object) -> Job:
    chunks = [(START + hour * HOUR, START + (hour + 1) * HOUR) for hour in hours]
    text = "select date_trunc('hour', at) hour, kind, count(*) n, sum(value) total from {events} group by all"
    sql = str(more.pop("sql", text))
    return bench.job("hours", "hour", sql, chunks, [bench.input("events", "at")], **more)  # type: ignore[arg-type]


@pytest.fixture
def hourly(bench: Bench) -> Callable[..., Job]:
    return put_events(bench)


@pytest.fixture(scope="session")
def with_vector(session: Session, six_hours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of those six hours in which Spark deleted a row of the fourth by a deletion vector."""
    bench = Bench(session, tmp_path_factory.mktemp("vector"))
    for name in ("events", "hours"):
        shutil.copytree(six_hours / name, bench.root / name)
    DeltaTable(bench.path("hours")).alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    fourth = f"hour = timestamp_seconds({START + 3 * HOUR})"
    bench.sql(f"delete from delta.`{bench.path('hours')}` where kind = 1 and {fourth}")
    return bench.root


@pytest.fixture(scope="session")
def six_hours(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six hours of a day, one by one and two at once; then the third once more with other values."""
    bench = Bench(session, tmp_path_factory.mktemp("six"))
    make = put_events(bench)
    for hour in range(4):
        bench.run(make(hour))
    bench.run(make(4, 5))
    bench.run(make(2, sql=NEGATIVE))
    return bench.root
