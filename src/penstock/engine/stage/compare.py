"""Do the stored rows equal what the queries give?"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.engine.log.storage import Storage
from penstock.engine.rows.columns import fitted, target_schema
from penstock.engine.rows.digest import comparable
from penstock.engine.spark.failures import translating
from penstock.engine.spark.read import Reader
from penstock.engine.spark.session import Session
from penstock.engine.stage.query_rows import ask, fitted_rows, inside_its_chunk, key_columns, output_position, untagged
from penstock.engine.stage.replaced_files import Target
from penstock.engine.values.column_types import column_type
from penstock.engine.values.job import InputRead, Job
from penstock.engine.values.predicate import as_position, index, quoted
from penstock.values.intervals import Interval, IntervalSet
from penstock.values.tasks import Pin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

MOST_LOOKED_AT = 10_000
SAMPLES = 5
_STORED = "penstock_stored"
# names that no model has
_CHUNK, _EXPECTED, _HELD = "__penstock_chunk", "__penstock_expected", "__penstock_held"
_CLOSE = 1e-11
"""Doubles are compared at 12 digits; two that fall on both sides of a rounding edge are still equal."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rows of some chunks, stored and expected: as multisets, or by their keys where rows are appended."""

    rows_stored: int
    rows_expected: int
    missing: int
    """Expected rows that are not stored; of an append, expected keys that are stored nowhere."""
    unexpected: int
    """Stored rows that are not expected; of an append, second rows of a key, and what should have been retracted."""
    differing: frozenset[Interval]
    samples: tuple[dict[str, object], ...]


@dataclass(frozen=True, slots=True)
class _Difference:
    """A row of which one side has more: `extra` copies are missing, or unexpected when negative."""

    chunk: int
    values: tuple[object, ...]
    extra: int


def compare(session: Session, job: Job, snapshot: int, storage: Storage | None = None) -> Comparison:
    """Compute the job's rows again and compare them with the table at `snapshot`; nothing is written."""
    group = f"verify/{uuid4()}"
    with (
        session.attempt(group, job.model, job.timeout_seconds) as attempt,
        translating(attempt, job.about, job.timeout_seconds),
    ):
        if job.unique_key:
            return _compared_by_key(attempt.spark, job, snapshot, storage)
        return _compared(attempt.spark, job, snapshot, storage)


def _compared(spark: SparkSession, job: Job, snapshot: int, storage: Storage | None) -> Comparison:
    chunks = sorted(job.chunks)
    counted, names = _counted(spark, job, snapshot, chunks, storage)
    lacking, surplus = f"greatest({_EXPECTED} - {_HELD}, 0L)", f"greatest({_HELD} - {_EXPECTED}, 0L)"
    totals = counted.groupBy(_CHUNK).agg(*_sums(_EXPECTED, _HELD, lacking, surplus))
    stored = expected = missing = unexpected = 0
    differing: set[Interval] = set()
    for row in totals.collect():
        expected, stored = expected + row[1], stored + row[2]
        missing, unexpected = missing + row[3], unexpected + row[4]
        if row[3] or row[4]:
            differing.add(chunks[row[0]])
    if not differing:
        return Comparison(stored, expected, 0, 0, frozenset(), ())
    rest = counted.filter(f"{_EXPECTED} <> {_HELD}").limit(MOST_LOOKED_AT + 1).collect()
    differences = [
        _Difference(row[_CHUNK], tuple(row[name] for name in names), row[_EXPECTED] - row[_HELD]) for row in rest
    ]
    if len(differences) <= MOST_LOOKED_AT:
        differences = _unpaired(differences)
        missing = sum(difference.extra for difference in differences if difference.extra > 0)
        unexpected = -sum(difference.extra for difference in differences if difference.extra < 0)
        differing = {chunks[difference.chunk] for difference in differences}
    samples = tuple(_sample(difference, names) for difference in differences[:SAMPLES])
    return Comparison(stored, expected, missing, unexpected, frozenset(differing), samples)


def _compared_by_key(spark: SparkSession, job: Job, snapshot: int, storage: Storage | None) -> Comparison:
    chunks = sorted(job.chunks)
    facts, names = _facts(spark, job, snapshot, chunks, storage)
    (total,) = facts.agg(*_sums("if(wanted > 0, 1L, 0L)", "held_here", "missing", "unexpected")).collect()
    expected, stored, missing, unexpected = (value or 0 for value in total)
    if not missing and not unexpected:
        return Comparison(stored, expected, 0, 0, frozenset(), ())
    wrong = facts.filter("missing > 0 or unexpected > 0")
    differing = {chunks[row[0]] for row in wrong.selectExpr("explode(places) as place").distinct().collect()}
    samples = [
        {
            "difference": "missing" if row["missing"] else "unexpected",
            "times": row["missing"] or row["unexpected"],
            "row": {name: _shown(row[f"key_{number}"]) for number, name in enumerate(names)},
        }
        for row in wrong.limit(SAMPLES).collect()
    ]
    return Comparison(stored, expected, missing, unexpected, frozenset(differing), tuple(samples))


def _facts(
    spark: SparkSession, job: Job, snapshot: int, chunks: list[Interval], storage: Storage | None
) -> tuple[DataFrame, tuple[str, ...]]:
    """Every key that is expected or stored: how often, what is wrong with it, and in which chunks."""
    from pyspark.sql import functions as f

    at_its_place = job.position.name.casefold() in [name.casefold() for name in job.unique_key]
    both = both_sides(spark, job, snapshot, job.scope if at_its_place else None, storage)
    field, names = both.target.field, tuple(name for name, _ in key_columns(job, both.target.schema))
    columns = [f"{quoted(name)} as key_{number}" for number, name in enumerate(names)]
    columns += [f"{as_position(field)} as at", f"{index(field.name, field.kind, chunks)} as chunk"]
    new = both.expected.selectExpr(*columns, "1L as wanted", "0L as held").filter("chunk >= 0")
    old = both.stored.selectExpr(*columns, "0L as wanted", "1L as held")
    keys = [f"key_{number}" for number in range(len(names))]
    here, vanished = "if(chunk >= 0, held, 0L)", "chunk >= 0 and held > 0 and wanted = 0"
    placed = new.union(old).groupBy(*keys, "at", "chunk").agg(f.expr("sum(wanted) wanted"), f.expr("sum(held) held"))
    counted = placed.groupBy(*keys).agg(
        f.expr("sum(wanted) as wanted"),
        f.expr("sum(held) as held"),
        f.expr(f"sum({here}) as held_here"),
        f.expr(f"sum(if({vanished}, held, 0L)) as vanished"),
        f.expr(f"collect_set(if({vanished}, chunk, null)) as vanished_in"),
        f.expr("collect_set(if(chunk >= 0, chunk, null)) as seen_in"),
    )
    unexpected = f"greatest(held_here - 1, {'vanished' if job.retract else '0L'}, 0L)"
    compared = counted.selectExpr(
        *keys, "wanted", "held_here", "if(wanted > 0 and held = 0, 1L, 0L) as missing", f"{unexpected} as unexpected",
        f"if({'vanished > 0' if job.retract else 'false'}, vanished_in, seen_in) as places",
    )  # fmt: skip
    return compared, names


def _counted(
    spark: SparkSession, job: Job, snapshot: int, chunks: list[Interval], storage: Storage | None
) -> tuple[DataFrame, tuple[str, ...]]:
    """Every different row with its chunk and how often it is expected and stored."""
    from pyspark.sql import functions as f

    both = both_sides(spark, job, snapshot, job.scope, storage)
    schema, field = both.target.schema, both.target.field
    number = index(field.name, field.kind, chunks)
    columns = [f"{rounded(quoted(c.name), c.dataType)} as {quoted(c.name)}" for c in schema.fields]
    new = both.expected.selectExpr(*columns, f"{number} as {_CHUNK}", f"1L as {_EXPECTED}", f"0L as {_HELD}")
    old = both.stored.selectExpr(*columns, f"{number} as {_CHUNK}", f"0L as {_EXPECTED}", f"1L as {_HELD}")
    names = tuple(schema.names)
    grouped = new.union(old).filter(f"{_CHUNK} >= 0").groupBy(_CHUNK, *map(quoted, names))
    return grouped.agg(*(f.expr(f"sum({name}) as {name}") for name in (_EXPECTED, _HELD))), names


@dataclass(frozen=True, slots=True)
class BothSides:
    """What the queries give and what is stored, in the same columns."""

    expected: DataFrame
    stored: DataFrame
    target: Target


def both_sides(
    spark: SparkSession, job: Job, snapshot: int, window: IntervalSet | None, storage: Storage | None
) -> BothSides:
    """The job's rows computed again, and those of the table at `snapshot` inside `window`, all when there is none."""
    reader = Reader(spark, storage)
    read = InputRead(_STORED, job.model, Pin(job.location, snapshot), position=job.position, window=window)
    table = reader.frame(reader.planned(read))
    asked = ask(spark, job, reader)
    query_schema = untagged(asked.frames[0].schema, job.renderings[0])
    schema = target_schema(query_schema, table.schema, add_columns=True)
    field = output_position(schema, job)
    target, expected = Target(schema, field), []
    for frame, rendering in zip(asked.frames, job.renderings, strict=True):
        rows = fitted_rows(frame, target, rendering).filter(inside_its_chunk(field, rendering))
        expected.append(rows.select(*map(quoted, schema.names)))
    stored = table.selectExpr(*fitted(table.schema, schema))
    return BothSides(reduce(lambda a, b: a.union(b), expected), stored, target)


def _sums(*expressions: str) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.expr(f"sum({expression})") for expression in expressions]


def rounded(expression: str, kind: DataType) -> str:
    """An equal scalar for equal values, doubles at 12 digits."""
    known = column_type(kind.jsonValue())
    return comparable(expression, kind) if known is None else known.sql_compared(expression)


def _unpaired(differences: list[_Difference]) -> list[_Difference]:
    """The differences without pairs of rows that differ by the rounding of doubles alone."""
    missing = [difference for difference in differences if difference.extra > 0]
    open_: list[_Difference] = []
    by_text: dict[object, list[_Difference]] = {}
    for difference in missing:
        by_text.setdefault(_exact_part(difference), []).append(difference)
    for difference in differences:
        if difference.extra > 0:
            continue
        others = by_text.get(_exact_part(difference), [])
        match = next(
            (other for other in others if other.extra == -difference.extra and _close(difference, other)), None
        )
        if match is None:
            open_.append(difference)
        else:
            others.remove(match)
    return [difference for others in by_text.values() for difference in others] + open_


def _exact_part(difference: _Difference) -> object:
    return (difference.chunk, *(None if _number(value) is not None else value for value in difference.values))


def _close(difference: _Difference, other: _Difference) -> bool:
    pairs = zip(difference.values, other.values, strict=True)
    return all(
        a == b
        or ((x := _number(a)) is not None and (y := _number(b)) is not None and math.isclose(x, y, rel_tol=_CLOSE))
        for a, b in pairs
    )


def _number(value: object) -> float | None:
    """The double that `_rounded` spelled; None for any other value."""
    if not isinstance(value, str) or "e" not in value or len(value) > 24:
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _sample(difference: _Difference, names: tuple[str, ...]) -> dict[str, object]:
    what = "missing" if difference.extra > 0 else "unexpected"
    row = {name: _shown(value) for name, value in zip(names, difference.values, strict=True)}
    return {"difference": what, "times": abs(difference.extra), "row": row}


def _shown(value: object) -> object:
    number = _number(value)
    if number is not None and math.isfinite(number):
        return number
    return value if value is None or isinstance(value, (bool, int, str)) else json.loads(json.dumps(value, default=str))
