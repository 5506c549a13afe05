"""Do the new rows keep the rules that their model states?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.engine.spark.read import Reader, staged_rows
from penstock.engine.values.job import InputRead, StagedChunk, StagedFile, TableJob
from penstock.engine.values.predicate import quoted
from penstock.errors import QueryError
from penstock.values.models import Check
from penstock.values.models.axis import shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_ROWS, _PARENT = "penstock_new", "penstock_parent_"


def check(
    spark: SparkSession,
    job: TableJob,
    reader: Reader,
    *,
    files: tuple[StagedFile, ...],
    schema: StructType,
    chunks: tuple[StagedChunk, ...],
) -> tuple[str, ...]:
    """The warnings; a QueryError when a rule of severity error is broken. One Spark job at most."""
    broken = [*_counted(job, chunks), *_looked_at(spark, job, reader, files, schema)]
    errors = [text for rule, text in broken if rule.severity == "error"]
    if errors:
        raise QueryError(f"{job.about}: " + "; ".join(errors), hint="nothing was published; see `checks` of the model")
    return tuple(text for _, text in broken)


def _counted(job: TableJob, chunks: Sequence[StagedChunk]) -> Iterator[tuple[Check, str]]:
    """Rules about how many rows a chunk has: the chunks are counted anyway."""
    for rule in job.checks:
        if rule.kind != "row_count":
            continue
        least, most = rule.argument.get("min"), rule.argument.get("max")
        for chunk in chunks:
            if (isinstance(least, int) and chunk.rows < least) or (isinstance(most, int) and chunk.rows > most):
                at = "" if job.position is None else f" at {shown(chunk.interval.start, job.position.axis)}"
                yield rule, f"check row_count: {chunk.rows} rows{at}, wanted {_span(least, most)}"
                break


def _looked_at(
    spark: SparkSession, job: TableJob, reader: Reader, files: tuple[StagedFile, ...], schema: StructType
) -> Iterator[tuple[Check, str]]:
    rules = [rule for rule in job.checks if rule.kind != "row_count"]
    if not rules or not files:
        return
    staged_rows(spark, job.location, schema, files).createOrReplaceTempView(_ROWS)
    joins = ""
    for number, rule in enumerate(rules):
        if rule.kind == "relationships":
            view, field = f"{_PARENT}{number}", quoted(str(rule.argument["field"]))
            reader.frame(reader.planned(_parent(job, rule, view))).createOrReplaceTempView(view)
            (name,) = _columns(rule.argument)
            column = f"__penstock_f{number}"
            joins += f" left join (select distinct {field} as {column} from {view}) on n.{quoted(name)} = {column}"
    counts = ", ".join(_violations(rule, number) for number, rule in enumerate(rules))
    (row,) = spark.sql(f"select {counts} from {_ROWS} n{joins}").collect()
    for number, rule in enumerate(rules):
        if row[number]:
            yield rule, f"check {rule.kind} {_about(rule)}: {row[number]} rows break it"


def _violations(rule: Check, number: int) -> str:
    """An aggregate for the number of rows that break the rule."""
    argument = rule.argument
    names = [f"n.{quoted(name)}" for name in _columns(argument)]
    match rule.kind:
        case "not_null":
            return "count_if(" + " or ".join(f"{name} is null" for name in names) + ")"
        case "unique":
            return f"count(*) - count(distinct struct({', '.join(names)}))"
        case "accepted_values":
            values = argument["values"]
            listed = ", ".join(_literal(value) for value in values) if isinstance(values, Sequence) else ""
            return f"count_if({names[0]} not in ({listed}))"
        case "relationships":
            return f"count_if({names[0]} is not null and __penstock_f{number} is null)"
        case "expression":
            return f"count_if(not ({_expression(argument)}))"
        case kind:
            raise QueryError(f"there is no check {kind}")


def _expression(argument: Mapping[str, object]) -> str:
    return str(argument["sql"])


def _parent(job: TableJob, rule: Check, view: str) -> InputRead:
    """The table that a relationship points to, whole, at the snapshot the attempt reads."""
    wanted = str(rule.argument["to"])
    for read in job.inputs:
        if wanted in (read.name, read.name.rpartition(".")[2]):
            return InputRead(view, read.name, read.pin, read.format)
    raise QueryError(
        f"{job.about}: check relationships points to {wanted}, which the query does not read",
        hint="name a table that the model depends on",
    )


def _columns(argument: Mapping[str, object]) -> list[str]:
    columns = argument.get("columns", argument.get("column"))
    if isinstance(columns, str):
        return [columns]
    return [str(name) for name in columns] if isinstance(columns, Sequence) else []


def _about(rule: Check) -> str:
    if rule.kind == "expression":
        return _expression(rule.argument)
    return ", ".join(_columns(rule.argument))


def _literal(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _span(least: object, most: object) -> str:
    if least is None:
        return f"at most {most}"
    return f"at least {least}" if most is None else f"{least} to {most}"
