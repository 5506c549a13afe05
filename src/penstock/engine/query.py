"""What does one SELECT over registered tables give?"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.failures import translating
from penstock.engine.job import InputRead
from penstock.engine.read import Reader
from penstock.engine.session import Session
from penstock.engine.storage import Storage
from penstock.errors import UsageError

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import SparkSession

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"


def query(
    session: Session, sql: str, reads: Sequence[InputRead], storage: Storage | None = None, timeout_seconds: int = 1800
) -> list[dict[str, object]]:
    """The rows of `sql` as JSON can show them; it sees the views of `reads` and nothing else."""
    with (
        session.attempt(f"query/{uuid4()}", "query", timeout_seconds) as attempt,
        translating(attempt, "query", timeout_seconds),
    ):
        spark = attempt.spark
        reader = Reader(spark, storage)
        for read in reads:
            reader.frame(reader.planned(read)).createOrReplaceTempView(read.view)
        # files and paths are not registered tables
        spark.conf.set("spark.sql.runSQLOnFiles", "false")
        check_select(spark, sql)
        frame = spark.sql(sql)
        twice = [name for name, count in Counter(frame.columns).items() if count > 1]
        if twice:
            raise UsageError(f"the result has several columns named {twice[0]}", hint="give each its own alias")
        table = frame.toArrow()
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in zip(*columns, strict=True)]


def check_select(spark: SparkSession, sql: str) -> None:
    """A UsageError unless `sql` is one statement that only reads."""
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    if _writes(spark, plan):
        raise UsageError("query takes exactly one SELECT, which changes nothing")


def _writes(spark: SparkSession, plan: JavaObject) -> bool:
    from py4j.java_gateway import is_instance_of

    gateway = spark.sparkContext._gateway
    kinds = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
    if any(is_instance_of(gateway, plan, kind) for kind in kinds):
        return True
    below = [plan.children(), plan.innerChildren()]
    return any(
        _writes(spark, inner)
        for some in below
        for i in range(some.size())
        if is_instance_of(gateway, inner := some.apply(i), f"{_LOGICAL}.LogicalPlan")
    )


def plain(value: object) -> object:  # noqa: PLR0911  # one line per kind of value
    """A value as JSON can show it: times in ISO 8601 and UTC, numbers as numbers where they keep every digit."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return _number(value)
        case datetime():
            return value.astimezone(UTC).isoformat() if value.tzinfo is not None else value.isoformat()
        case date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case dict():
            return {str(key): plain(inner) for key, inner in value.items()}
        case tuple() if len(value) == 2:
            return [plain(inner) for inner in value]
        case list():
            if value and all(isinstance(inner, tuple) and len(inner) == 2 for inner in value):
                return {str(plain(key)): plain(inner) for key, inner in value}
            return [plain(inner) for inner in value]
        case _:
            return str(value)


def _number(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    return near if Decimal(repr(near)) == value else str(value)
