"""Do the stored rows of a table without positions equal what its query gives?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.log.snapshot import snapshot as table_snapshot
from penstock.engine.log.storage import Storage
from penstock.engine.refresh.changes import understood
from penstock.engine.rows.columns import fitted
from penstock.engine.spark.failures import translating
from penstock.engine.spark.read import Reader, plain_schema, through_parquet
from penstock.engine.spark.session import Session
from penstock.engine.stage.compare import SAMPLES, Comparison, rounded
from penstock.engine.values.job import RefreshJob
from penstock.engine.values.predicate import quoted
from penstock.errors import EngineError
from penstock.planner.dynamic.program import Incremental
from penstock.values.tasks import WHOLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_SIDE, _SURPLUS = "__penstock_side", "__penstock_surplus"


def compare_whole(session: Session, job: RefreshJob, version: int, storage: Storage | None = None) -> Comparison:
    """Compute all rows again and compare them, as multisets, with the table at a snapshot; nothing is written."""
    stored = table_snapshot(job.location, None, version=version, storage=storage)
    if stored is None:
        raise EngineError(f"{job.model}: there is no table at {job.location}")
    program = understood(job, storage)
    with (
        session.attempt(f"verify/{uuid4()}", job.model, job.timeout_seconds) as attempt,
        translating(attempt, job.about, job.timeout_seconds),
    ):
        spark = attempt.spark
        reader = Reader(spark, storage)
        for read in job.reads:
            reader.frame(reader.planned(read)).createOrReplaceTempView(read.view)
        schema = plain_schema(stored.schema_json)
        given = spark.sql(program.full(job.now) if isinstance(program, Incremental) else job.sql)
        expected = given.selectExpr(*fitted(given.schema, schema))
        held = through_parquet(spark, job.location, schema, stored.files)
        return _compared(_plain(expected, schema, 1), _plain(held, schema, -1))


def _plain(rows: DataFrame, schema: StructType, side: int) -> DataFrame:
    """The rows in columns that can be grouped by; doubles count with 12 digits."""
    columns = [f"{rounded(quoted(field.name), field.dataType)} as {quoted(field.name)}" for field in schema.fields]
    return rows.selectExpr(*columns, f"{side}L as {_SIDE}")


def _compared(expected: DataFrame, held: DataFrame) -> Comparison:
    from pyspark.sql import functions as f

    names = expected.columns[:-1]
    counted = (
        expected.union(held)
        .groupBy(*map(quoted, names))
        .agg(
            f.sum(_SIDE).alias(_SURPLUS),
            f.sum(f.expr(f"if({_SIDE} > 0, 1L, 0L)")).alias("__penstock_given"),
            f.sum(f.expr(f"if({_SIDE} < 0, 1L, 0L)")).alias("__penstock_held"),
        )
    )
    (total,) = counted.selectExpr(
        "sum(__penstock_given)",
        "sum(__penstock_held)",
        f"sum(greatest({_SURPLUS}, 0L))",
        f"sum(greatest(-{_SURPLUS}, 0L))",
    ).collect()
    given, stored, missing, unexpected = (value or 0 for value in total)
    if not missing and not unexpected:
        return Comparison(stored, given, 0, 0, frozenset(), ())
    rows = counted.filter(f"{_SURPLUS} <> 0").limit(SAMPLES).collect()
    samples = tuple(_sample(row[_SURPLUS], names, row) for row in rows)
    return Comparison(stored, given, missing, unexpected, frozenset((WHOLE,)), samples)


def _sample(surplus: int, names: Sequence[str], row: Sequence[object]) -> dict[str, object]:
    return {
        "difference": "missing" if surplus > 0 else "unexpected",
        "times": abs(surplus),
        "row": {name: None if value is None else str(value) for name, value in zip(names, row, strict=False)},
    }
