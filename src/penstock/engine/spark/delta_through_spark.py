"""What does Spark say about a Delta table whose log only Spark can read?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.observe.bounds import columns_of, schema_hash
from penstock.engine.spark.failures import translating
from penstock.engine.spark.read import spark_path
from penstock.engine.spark.scan import bound
from penstock.engine.spark.session import Session
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.positions import position_field
from penstock.engine.values.predicate import as_position, quoted
from penstock.errors import AttemptError, SourceError
from penstock.values.changes import Changed, CommitChanges, LogChanges
from penstock.values.intervals import IntervalSet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_POSITIONS = 10_000
"""Beyond so many changed positions the answer is one range from the first to the last."""
_SECONDS = 1800


@dataclass(frozen=True, slots=True)
class SparkTableState:
    """The newest snapshot of such a table."""

    table_id: str
    snapshot: int
    schema_hash: str
    columns: Mapping[str, str]
    low: int | None
    high: int | None
    """Both inclusive; None without rows or without a position."""
    bytes: int
    feeds: bool
    """Its change feed is on."""


def seen(session: Session, location: str, position: PositionColumn | None) -> SparkTableState:
    with _asking(session, location) as spark:
        name = f"delta.{quoted(spark_path(location))}"
        detail = spark.sql(f"describe detail {name}").first()
        newest = spark.sql(f"describe history {name} limit 1").first()
        if detail is None or newest is None:
            raise SourceError(f"Spark finds no Delta table at {location}")
        frame = spark.read.format("delta").option("versionAsOf", newest["version"]).load(spark_path(location))
        low, high = (None, None) if position is None else _extremes(frame, position)
        return SparkTableState(
            table_id=detail["id"],
            snapshot=newest["version"],
            schema_hash=schema_hash(frame.schema.json()),
            columns=columns_of(frame.schema.json()),
            low=low,
            high=high,
            bytes=detail["sizeInBytes"],
            feeds=detail["properties"].get("delta.enableChangeDataFeed") == "true",
        )


def changes(
    session: Session, location: str, position: PositionColumn, snapshots: tuple[int, int], first: int | None
) -> LogChanges:
    """What its change feed tells of the commits after one snapshot up to another; `first` is the first row now."""
    after, upto = snapshots
    with _asking(session, location) as spark:
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after + 1)
        feed = reader.option("endingVersion", upto).load(spark_path(location))
        field = position_field(feed.schema.json(), position)
        frame = (
            feed.selectExpr(f"{as_position(field)} as p", "_commit_version as v", "_change_type = 'delete' as gone")
            .where("p is not null")
            .groupBy("v", "gone", "p")
            .count()
        )
        rows = frame.limit(MOST_POSITIONS + 1).toArrow().to_pylist()
        if len(rows) > MOST_POSITIONS:
            low, high = _extremes(feed, position)
            if low is None or high is None:
                return LogChanges()
            return LogChanges((CommitChanges(Changed(IntervalSet.of([(low, high + 1)]))),))
    return LogChanges(tuple(_commits(rows, first)))


def _commits(feed: list[dict[str, object]], first: int | None) -> Iterator[CommitChanges]:
    """Commit by commit, oldest first."""
    ordered = sorted(feed, key=lambda row: str(row["v"]).zfill(20))
    for _, group in groupby(ordered, key=lambda row: row["v"]):
        rows = list(group)
        touched = IntervalSet.of((at, at + 1) for row in rows if isinstance(at := row["p"], int))
        only_deletes = all(row["gone"] for row in rows)
        yield CommitChanges(
            Changed(touched), only_deletes=only_deletes, taken=touched if only_deletes else IntervalSet(), first=first
        )


def _extremes(frame: DataFrame, position: PositionColumn) -> tuple[int | None, int | None]:
    name = quoted(position_field(frame.schema.json(), position).name)
    row = frame.selectExpr(f"min({name}) as low", f"max({name}) as high").toArrow()
    return bound(row.column(0)), bound(row.column(1))


@contextmanager
def _asking(session: Session, location: str) -> Iterator[SparkSession]:
    try:
        with (
            session.attempt(f"look/{uuid4()}", location, _SECONDS) as attempt,
            translating(attempt, f"the Delta table at {location}", _SECONDS),
        ):
            yield attempt.spark
    except AttemptError as error:
        raise SourceError(error.message, hint=error.hint) from error
