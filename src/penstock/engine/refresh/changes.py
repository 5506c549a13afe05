"""What of its inputs changed since a table was refreshed, and does that decide how it is refreshed now?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.log.handle import TableMissing, UnreadableLog
from penstock.engine.log.snapshot import snapshot
from penstock.engine.log.storage import Storage
from penstock.engine.observe.source_log import source_log
from penstock.engine.refresh.changed_rows import ChangedRows, FewRows, ManyRows, Unchanged, changed_rows
from penstock.engine.refresh.reinitialize import Reinitialize
from penstock.engine.spark.read import HIDDEN
from penstock.engine.values.files import TableSnapshot
from penstock.engine.values.job import InputRead, RefreshedFrom, RefreshJob
from penstock.engine.values.schemas import spark_type
from penstock.errors import QueryError
from penstock.planner.dynamic.program import FullOnly, Incremental, understand
from penstock.planner.dynamic.snapshots import same_snapshot
from penstock.planner.dynamic.strategy import Choice


@dataclass(frozen=True, slots=True)
class Nothing:
    """The stored rows are what the query gives."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class Everything:
    """All rows are computed."""

    choice: Choice
    program: Incremental | None
    """None: the query is run as it is written."""


@dataclass(frozen=True, slots=True)
class ByKeys:
    """The keys of the changed rows are looked for."""

    program: Incremental
    changes: Mapping[str, FewRows | ManyRows]
    """By view, of the inputs that changed."""
    before: RefreshedFrom


Plan = Nothing | Everything | ByKeys


def plan_refresh(job: RefreshJob, stored: TableSnapshot | None, storage: Storage | None) -> Plan:
    """As the logs tell, without Spark. A QueryError when the author forbids what has to be done."""
    query = understood(job, storage)
    program = query if isinstance(query, Incremental) else None
    must = _must_be_full(job, stored)
    if must is not None:
        return Everything(must, program)
    assert job.before is not None and stored is not None  # noqa: S101  else it would have to be full
    changes = _changes(job, job.before, storage)
    if isinstance(changes, Choice):
        return _everything(job, changes, program)
    if not changes and not job.timed:
        return Nothing(Choice("no_data", "NO_CHANGE", "no row of its inputs changed"))
    return _planned(job, query, stored, changes)


def _planned(
    job: RefreshJob, query: Incremental | FullOnly, stored: TableSnapshot, changes: Mapping[str, FewRows | ManyRows]
) -> Plan:
    """How rows that changed are taken in."""
    assert job.before is not None  # noqa: S101
    program = query if isinstance(query, Incremental) else None
    if job.strategy == "full":
        return Everything(Choice("full", "FORCED", "refresh_strategy: full"), program)
    if isinstance(query, FullOnly):
        return _everything(job, Choice("full", query.code, query.reason), None)
    if (odd := _other_columns(query, stored)) is not None:
        return _everything(job, Choice("reinitialize", "COLUMNS_CHANGED", odd), program)
    return ByKeys(query, changes, job.before)


def _changes(
    job: RefreshJob, before: RefreshedFrom, storage: Storage | None
) -> Mapping[str, FewRows | ManyRows] | Choice:
    """The changed rows of each input, by its view; a choice where nobody can tell them."""
    changes: dict[str, FewRows | ManyRows] = {}
    for read in job.reads:
        match _change(read, before, storage):
            case Unchanged():
                pass
            case FewRows() | ManyRows() as change:
                changes[read.view] = change
            case Reinitialize(code, reason):
                return Choice("reinitialize", code, f"{read.name}: {reason}")
    return changes


def _everything(job: RefreshJob, choice: Choice, program: Incremental | None) -> Everything:
    if job.strategy in ("incremental", "affected_keys"):
        raise QueryError(
            f"{job.about}: it cannot be refreshed by its keys: {choice.words}",
            hint=f"penstock rerun {job.model} computes all of it once; refresh_strategy: auto does so when it must",
        )
    return Everything(choice, program)


def _must_be_full(job: RefreshJob, stored: TableSnapshot | None) -> Choice | None:
    """What is stored is no basis for anything, or is not to be trusted."""
    if job.before is None:
        return Choice("full", "NEVER_BUILT", "nothing is stored yet")
    if job.asked:
        return Choice("full", "ASKED", "a rerun or an invalidation asked for all of it")
    if stored is None:
        return Choice("reinitialize", "TABLE_GONE", "its table is gone")
    if stored.version != job.before.snapshot:
        said = f"snapshot {stored.version} of it is by another program"
        return Choice("reinitialize", "FOREIGN_COMMIT", said)
    if stored.needs_delta_reader is not None or stored.partition_columns:
        said = f"another program gave its table {stored.needs_delta_reader or 'partition columns'}"
        return Choice("reinitialize", "FOREIGN_COMMIT", said)
    return None


def _change(read: InputRead, before: RefreshedFrom, storage: Storage | None) -> ChangedRows:
    was, pin = before.frontier.get(read.name), read.pin
    if pin.snapshot is None or was is None or was.snapshot is None:
        return Reinitialize("NOT_READABLE", f"{read.format.name} has no log that tells which rows changed")
    if same_snapshot(was, pin):
        return Unchanged("the same snapshot")
    if was.generation != pin.generation:
        return Reinitialize("TABLE_REPLACED", "it was rebuilt, so that nothing tells which rows changed")
    try:
        table_id = was.table_id or _table_id(pin.location, storage)
        return changed_rows(pin.location, table_id, was.snapshot, pin.snapshot, storage=storage)
    except TableMissing:
        return Reinitialize("HISTORY_EXPIRED", f"there is no table at {pin.location}")
    except UnreadableLog as error:
        return Reinitialize("NOT_READABLE", error.message)


def _table_id(location: str, storage: Storage | None) -> str:
    now = snapshot(location, None, storage=storage)
    if now is None:
        raise TableMissing(location)
    return now.table_id


def understood(job: RefreshJob, storage: Storage | None) -> Incremental | FullOnly:
    """What is known of the query; the columns of its inputs are those of their logs."""
    schemas: dict[str, Mapping[str, str]] = {}
    for read in job.reads:
        columns = columns_of(read, storage)
        if columns is None:
            return FullOnly("NOT_RESOLVED", f"the columns of {read.name} are not known without Spark")
        schemas[read.view] = columns
    return understand(job.sql, schemas, job.key)


def columns_of(read: InputRead, storage: Storage | None) -> Mapping[str, str] | None:
    """The columns of a table at its snapshot and their types, as Spark spells them; None: its log does not tell."""
    if read.pin.snapshot is None:
        return None
    try:
        table = source_log(read.format).snapshot(read.pin.location, None, version=read.pin.snapshot, storage=storage)
    except UnreadableLog:
        return None
    if table is None:
        return None
    fields = json.loads(table.schema_json)["fields"]
    ours = read.pin.generation is not None
    return {
        field["name"]: spark_type(field["type"]) for field in fields if not (ours and field["name"].startswith(HIDDEN))
    }


def _other_columns(program: Incremental, stored: TableSnapshot) -> str | None:
    """How the columns of the query differ from those that are stored; None: they do not."""
    fields = json.loads(stored.schema_json)["fields"]
    have, wanted = [field["name"].lower() for field in fields], [*program.columns, *program.hidden]
    if sorted(have) == sorted(name.lower() for name in wanted):
        return None
    return f"the query gives {', '.join(program.columns)}, the table has {', '.join(field['name'] for field in fields)}"
