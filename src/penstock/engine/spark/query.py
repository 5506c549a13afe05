"""What does one SELECT over registered tables give?"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.log.storage import Storage
from penstock.engine.spark.failures import is_out_of_memory, translating
from penstock.engine.spark.query_rules import permitted
from penstock.engine.spark.read import Reader
from penstock.engine.spark.session import Attempt, Session
from penstock.engine.values.job import InputRead
from penstock.errors import EngineError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_GRACE_SECONDS = 10.0
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}

MOST_ROWS = 10_000
MOST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one query may give and take."""

    rows: int = MOST_ROWS
    seconds: int = MOST_SECONDS
    size_bytes: int = 256 * 2**20


def query(
    session: Session, sql: str, reads: Sequence[InputRead], storage: Storage | None = None, limits: Limits | None = None
) -> list[dict[str, object]]:
    """The rows of `sql` as JSON can show them; it sees the views of `reads` and nothing else."""
    limits = limits or Limits()
    with session.attempt(f"query/{uuid4()}", "query", limits.seconds) as attempt, _ending(session, attempt, limits):
        spark = attempt.spark
        reader = Reader(spark, storage)
        for read in reads:
            reader.frame(reader.planned(read)).createOrReplaceTempView(read.view)
        spark.conf.set("spark.sql.runSQLOnFiles", "false")  # files and paths are not registered tables
        spark.conf.set("spark.sql.variable.substitute", "false")  # `${env:NAME}` would tell about this process
        frame = permitted(spark, sql, frozenset(read.view for read in reads))
        twice = [name for name, count in Counter(frame.columns).items() if count > 1]
        if twice:
            raise UsageError(f"the result has several columns named {twice[0]}", hint="give each its own alias")
        table = collected(frame.limit(limits.rows + 1), limits.size_bytes)
    if table.num_rows > limits.rows:
        raise UsageError(
            f"the query gives more than {limits.rows:,} rows", hint="aggregate, add LIMIT, or ask for more with --limit"
        )
    names = table.column_names
    columns = [column.to_pylist() for column in table.columns]
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in zip(*columns, strict=True)]


def collected(frame: DataFrame, most_bytes: int) -> pa.Table:
    """The rows of a frame, as long as they are not too large: they come in batches, and the rest is not fetched."""
    import pyarrow as pa
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.util import _load_from_socket

    schema = to_arrow_schema(frame.schema, timezone="UTC", prefers_large_types=False)
    port, password, server = frame._jdf.collectAsArrowToPython()
    batches: list[pa.RecordBatch] = []
    order: list[int] = []
    size = 0
    try:
        with _load_from_socket((port, password), ArrowCollectSerializer()) as stream:  # type: ignore[no-untyped-call]
            for item in stream:
                if not isinstance(item, pa.RecordBatch):
                    order = item
                    continue
                size += item.nbytes
                if size > most_bytes:
                    raise UsageError(
                        f"the result is larger than {most_bytes // 2**20} MiB", hint="ask for fewer rows or columns"
                    )
                batches.append(item)
    except UsageError:
        raise
    except Exception:
        with unwrap_spark_exception():
            server.getResult()  # the reason; the stream only breaks off
        raise
    with unwrap_spark_exception():
        server.getResult()  # a failure may look like an empty stream
    return pa.Table.from_batches([batches[number] for number in order]).cast(schema) if order else schema.empty_table()


@contextmanager
def _ending(session: Session, attempt: Attempt, limits: Limits) -> Iterator[None]:
    """Let a query end in time, whatever it is doing, and say why in words about queries."""
    # what the driver itself computes heeds no cancellation
    force = threading.Timer(limits.seconds + _GRACE_SECONDS, session.kill)
    force.daemon = True
    force.start()
    try:
        with translating(attempt, "query", limits.seconds):
            yield
    except EngineError as error:
        if attempt.timed_out:
            raise UsageError(
                f"the query was not done after {limits.seconds} s", hint="ask for less, or for a smaller range"
            ) from error
        if is_out_of_memory(error) or not session.alive:
            raise UsageError(
                "the query needed more memory than Spark has",
                hint="ask for less, or raise spark.driver.memory in `spark.conf`",
            ) from error
        raise
    except UsageError:
        session.cancel(attempt.group)  # nothing reads its result any more
        raise
    finally:
        force.cancel()


def plain(value: object) -> object:  # noqa: PLR0911  # one line per kind of value
    """A value as JSON can show it: its type follows from the column's, but for numbers that JSON does not have."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
        case Decimal():
            return int(value) if value.as_tuple().exponent == 0 else f"{value:f}"
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
