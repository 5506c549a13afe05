"""Where do the rows of a source begin and end, when only Spark can tell?"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.log.storage import Storage
from penstock.engine.spark.failures import translating
from penstock.engine.spark.read import Reader
from penstock.engine.spark.session import Session
from penstock.engine.values.arrow_positions import positions
from penstock.engine.values.column_types import PositionType, arrow_type
from penstock.engine.values.files import PositionColumn
from penstock.engine.values.job import InputRead
from penstock.engine.values.positions import fitting, position_field
from penstock.engine.values.predicate import quoted
from penstock.errors import AttemptError, SourceError, UsageError
from penstock.values.models.axis import SECOND
from penstock.values.models.source_format import SourceFormat
from penstock.values.tasks import Pin

if TYPE_CHECKING:
    import pyarrow as pa
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
VIEW = "penstock_in_0"
"""The source itself, for bounds queries."""


def scan(
    session: Session,
    location: str,
    source_format: SourceFormat,
    position: PositionColumn,
    *,
    snapshot: int | None = None,
    sql: str | None = None,
    storage: Storage | None = None,
    timeout_seconds: int = 1800,
) -> tuple[int | None, int | None]:
    """The least and the greatest position, both inclusive, None without rows; `sql` asks for them its own way."""
    try:
        with (
            session.attempt(f"scan/{uuid4()}", location, timeout_seconds) as attempt,
            translating(attempt, f"the bounds of {location}", timeout_seconds),
        ):
            spark = attempt.spark
            reader = Reader(spark, storage)
            frame = reader.frame(reader.planned(InputRead(VIEW, location, Pin(location, snapshot), source_format)))
            frame.createOrReplaceTempView(VIEW)
            if sql is None:
                return _pair(_extremes(frame, position))
            _check_reads(spark, sql)
            return _pair(spark.sql(sql))
    except AttemptError as error:
        raise SourceError(error.message, hint=error.hint) from error


def _check_reads(spark: SparkSession, sql: str) -> None:
    """A UsageError unless `sql` is one statement that only reads; its author may otherwise do what a model may."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    if _writes(spark, plan):
        raise UsageError("a bounds query is exactly one SELECT, which changes nothing")


def _writes(spark: SparkSession, plan: JavaObject) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway = spark.sparkContext._gateway
    kinds = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
    if any(is_instance_of(gateway, plan, kind) for kind in kinds):
        return True
    below = [plan.children(), plan.innerChildren()]
    return any(
        _writes(spark, inner)
        for plans in below
        for i in range(plans.size())
        if is_instance_of(gateway, inner := plans.apply(i), f"{_LOGICAL}.LogicalPlan")
    )


def _extremes(frame: DataFrame, position: PositionColumn) -> DataFrame:
    name = quoted(position_field(frame.schema.json(), position).name)
    return frame.selectExpr(f"min({name}) as min", f"max({name}) as max")


def _pair(frame: DataFrame) -> tuple[int | None, int | None]:
    names = [name.casefold() for name in frame.columns]
    if len(names) != 2:
        raise SourceError(
            f"a bounds query gives two columns, min and max; this one gives {', '.join(frame.columns)}",
            hint="select min(…) as min, max(…) as max",
        )
    table = frame.limit(2).toArrow()
    if table.num_rows != 1:
        raise SourceError(f"a bounds query gives one row; this one gives {'several' if table.num_rows else 'none'}")
    low, high = (names.index("min"), names.index("max")) if {"min", "max"} <= set(names) else (0, 1)
    return bound(table.column(low)), bound(table.column(high))


def bound(column: pa.ChunkedArray) -> int | None:
    """The position that the only value of a column stands for, whatever type that is."""
    if column.null_count:
        return None
    kind = arrow_type(column.type)
    at = positions(column, kind) if isinstance(kind, PositionType) else None
    if at is None:
        raise SourceError(f"a bound must be {fitting(SECOND)}, not {column[0].as_py()!r}")
    return int(at[0].as_py())
